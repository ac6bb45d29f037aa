package roster

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// The members of the coordination store follow those of the core. The leader of the coordination
// store may be another member than the core's leader. It copies the core's record as far as it has
// applied it, with the version of the record. The core's leader waits with its next step until the
// coordination store has made the step before (coordinationLags), so that the two are at most one
// step apart.
//
// A core's leader of an older version does not wait. Then the coordination store reaches the record
// by several steps, each with a version in between:
//
//	joint                                 end it
//	a learner that the core has no more   remove it
//	a member that is missing              add it as a learner
//	voters that differ                    a joint configuration
//
// There are enough versions for these steps, because the core has taken at least as many. Each
// added member and each removed learner was a step of its own, and voters change by two steps. If
// the newest version is joint, the version before has the old half of it.
//
// INVARIANT: a change that the core has made does not wait for a newcomer that is gone. If the
// other members are a majority, they continue without the newcomer. Otherwise the core, which waits
// for the coordination store, could not remove the newcomer.

// FollowView is the state of the coordination store at one moment, on its leader.
type FollowView struct {
	View
	// Gone reports whether a member's server is silent.
	Gone func(replica uint64) bool
	// Leaving is set if this member is no longer a member of the core.
	Leaving bool
}

// FollowStep returns the next step of the coordination store's members towards the core's members.
func FollowStep(core *storepb.Members, v *FollowView) Step {
	now := store.ConfigurationOf(v.Members)
	leader := keys.ReplicaID(v.Leader)
	// A member that leaves does not receive the core's later changes.
	if v.Leaving || !now.Electable(leader) {
		return v.handOver(func(m *storepb.Member) bool {
			return now.Electable(keys.ReplicaID(m.Replica))
		})
	}
	if core.GetVersion() <= v.Members.GetVersion() {
		return Step{Done: true, Text: "done"}
	}
	next := towards(v.Members, core)
	to := store.ConfigurationOf(next)
	step := Step{Next: next, Text: fmt.Sprintf("follows the core: %s", &to)}
	if next != core && next.Version >= core.Version {
		step.Waits = "no version is left"
		return step
	}
	if now.Equal(&to) {
		return step
	}
	if !to.Electable(leader) {
		return v.handOver(func(m *storepb.Member) bool {
			id := keys.ReplicaID(m.Replica)
			return now.Electable(id) && to.Electable(id)
		})
	}
	for _, m := range next.Members {
		was := now.Role(keys.ReplicaID(m.Replica))
		if m.Role != storepb.MemberRole_INCOMING || was != group.Learner || v.Gone(m.Replica) {
			continue
		}
		behind := v.Behind(m.Replica)
		if behind == "" && !v.Answers(m.Replica) {
			behind = "it does not answer yet"
		}
		if behind != "" {
			return Step{Text: fmt.Sprintf("sends %s the state", m.Address), Waits: behind}
		}
	}
	step.Waits = v.Lacks(next)
	return step
}

// towards returns the next record between a record of members and a later one. It returns the later
// record itself if that is one step away.
func towards(now, core *storepb.Members) *storepb.Members {
	from, to := store.ConfigurationOf(now), store.ConfigurationOf(core)
	if from.Equal(&to) || from.CanBecome(&to) == nil {
		return core
	}
	next := proto.Clone(now).(*storepb.Members)
	next.Version++
	if from.Joint() {
		leave(next)
		return next
	}
	goal := unjoined(core)
	for _, m := range next.Members {
		if m.Role == storepb.MemberRole_LEARNER && ByReplica(goal, m.Replica) == nil {
			remove(next, m)
			return next
		}
	}
	// Ascending ids are the order in which the ids were given out.
	for _, m := range goal.Members {
		if ByReplica(next, m.Replica) == nil {
			m.Role = storepb.MemberRole_LEARNER
			next.Members = append(next.Members, m)
			next.NextReplica = max(next.NextReplica, m.Replica+1)
			return next
		}
	}
	for _, m := range next.Members {
		want := ByReplica(goal, m.Replica)
		switch {
		case want == nil:
			m.Role = storepb.MemberRole_OUTGOING
		case m.Role == storepb.MemberRole_LEARNER && want.Role == storepb.MemberRole_VOTER:
			m.Role = storepb.MemberRole_INCOMING
		}
	}
	return next
}

// unjoined returns a copy of a configuration. For a joint configuration it returns the
// configuration from which the joint one was made.
func unjoined(m *storepb.Members) *storepb.Members {
	before := proto.Clone(m).(*storepb.Members)
	for _, x := range before.Members {
		switch x.Role {
		case storepb.MemberRole_INCOMING:
			x.Role = storepb.MemberRole_LEARNER
		case storepb.MemberRole_OUTGOING:
			x.Role = storepb.MemberRole_VOTER
		}
	}
	return before
}
