package membership

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// The members of the coordination store follow those of the core. Its leader, which may be another
// member than the core's, copies the core's record that it has applied, with its version. The
// core's leader waits with its next step until the coordination store has made the step before
// (coordinationLags), so that the two are at most one step apart.
//
// A leader of the core of an older version does not wait. Then the coordination store reaches the
// record by several steps, each with a version in between:
//
//	joint                                 end it
//	a learner that the core has no more   remove it
//	a member that is missing              add it as a learner
//	voters that differ                    a joint configuration
//
// There are enough versions for these steps, since the core has taken at least as many: each member
// that came was added, and each learner that went was removed, by a step of its own, and voters
// change by two steps. The version before a newest one that is joint is its old half.
//
// INVARIANT: a change that the core has made does not wait for a newcomer that is gone: where the
// others are a majority, they continue without it. Otherwise the core, which waits for the
// coordination store, could not take the newcomer out again.

// followView is the state of the coordination store at one moment, on its leader.
type followView struct {
	coreView
	// gone says that nothing is heard of a member's server.
	gone func(replica uint64) bool
	// leaving is set if this member no longer is one of the core.
	leaving bool
}

// followStepOf is the next step of the coordination store's members towards the core's.
func followStepOf(core *storepb.Members, v *followView) coreStep {
	now := store.ConfigurationOf(v.members)
	leader := keys.ReplicaID(v.leader)
	// A member that leaves does not hear what the core does next.
	if v.leaving || !now.Electable(leader) {
		return v.handOver(func(m *storepb.Member) bool {
			return now.Electable(keys.ReplicaID(m.Replica))
		})
	}
	if core.GetVersion() <= v.members.GetVersion() {
		return coreStep{done: true, text: "done"}
	}
	next := towards(v.members, core)
	to := store.ConfigurationOf(next)
	step := coreStep{next: next, text: fmt.Sprintf("follows the core: %s", &to)}
	if next != core && next.Version >= core.Version {
		step.waits = "no version is left"
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
		if m.Role != storepb.MemberRole_INCOMING || was != group.Learner || v.gone(m.Replica) {
			continue
		}
		behind := v.behind(m.Replica)
		if behind == "" && !v.answers(m.Replica) {
			behind = "it does not answer yet"
		}
		if behind != "" {
			return coreStep{text: fmt.Sprintf("sends %s the state", m.Address), waits: behind}
		}
	}
	step.waits = v.lacks(next)
	return step
}

// towards returns the next record on the way from a record of members to a later one: the later one
// itself, if it is one step away.
func towards(now, core *storepb.Members) *storepb.Members {
	from, to := store.ConfigurationOf(now), store.ConfigurationOf(core)
	if from.Equal(&to) || from.CanBecome(&to) == nil {
		return core
	}
	next := proto.Clone(now).(*storepb.Members)
	next.Version++
	if from.Joint() {
		leaveCore(next)
		return next
	}
	goal := unjoined(core)
	for _, m := range next.Members {
		if m.Role == storepb.MemberRole_LEARNER && memberByReplica(goal, m.Replica) == nil {
			removeMember(next, m)
			return next
		}
	}
	// By ascending ids, as they were given out.
	for _, m := range goal.Members {
		if memberByReplica(next, m.Replica) == nil {
			m.Role = storepb.MemberRole_LEARNER
			next.Members = append(next.Members, m)
			next.NextReplica = max(next.NextReplica, m.Replica+1)
			return next
		}
	}
	for _, m := range next.Members {
		want := memberByReplica(goal, m.Replica)
		switch {
		case want == nil:
			m.Role = storepb.MemberRole_OUTGOING
		case m.Role == storepb.MemberRole_LEARNER && want.Role == storepb.MemberRole_VOTER:
			m.Role = storepb.MemberRole_INCOMING
		}
	}
	return next
}

// unjoined is the configuration from which a joint one was begun; any other is itself. It is a
// copy.
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
