package roster

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A change of the core's members has no state but its goal, like an operator of a partition: the
// next step follows from the present members. So any leader of the core can continue the change,
// and a step that is taken twice has no effect the second time.
//
//	joint                        hand over the leadership, if the leader is to go; end it
//	the newcomer is missing      add it as a learner, if it knows what is in the log
//	it is a learner, to vote     wait until it has the log; then hand over the leadership, if the
//	                             leader is to go and another voter can take it, and by one joint
//	                             configuration let the newcomer in and the other out
//	the other is a voter         hand over the leadership, if it leads, and let it out
//	the other is a learner       remove it
//	the goal is reached          done
//
// A core of one member cannot transfer the leadership before the newcomer votes. So the newcomer
// becomes a voter first and takes the leadership, and then the other member is removed.

// Step is a step of a change of the members.
type Step struct {
	// Done is set if nothing is left to do.
	Done bool
	// Next are the next members. If Next is nil, the members stay as they are.
	Next *storepb.Members
	// Transfer is the member that gets the leadership, or 0.
	Transfer uint64
	// Text describes the step in words. Waits says what the step waits for. It is empty if the step
	// can be taken.
	Text, Waits string
}

// View is the state of the core at one moment, on its leader.
type View struct {
	Members *storepb.Members
	Leader  uint64
	// Answers reports whether a member was heard recently.
	Answers func(replica uint64) bool
	// Averse reports whether a member leaves leadership to others at present.
	Averse func(replica uint64) bool
	// Behind describes what a member lacks. It is empty if the member lacks next to nothing.
	Behind func(replica uint64) string
	// MayAdd returns why a goal's newcomer, which is not a member yet, cannot be added now. It returns
	// an empty string if the newcomer can be added.
	MayAdd func(*serverpb.CoreGoal) string
}

// NextStep returns the next step towards a goal.
func NextStep(g *serverpb.CoreGoal, v *View) Step {
	now := store.ConfigurationOf(v.Members)
	next := proto.Clone(v.Members).(*storepb.Members)
	next.Version++
	in, out := ByServer(next, g.AddServer), ByReplica(next, g.RemoveReplica)
	step := Step{Next: next}
	switch {
	case now.Joint():
		if !now.Electable(keys.ReplicaID(v.Leader)) {
			return v.handOver(func(m *storepb.Member) bool {
				return m.Role == storepb.MemberRole_VOTER || m.Role == storepb.MemberRole_INCOMING
			})
		}
		leave(next)
		step.Text = "ends the change of voters"
	case g.AddServer != 0 && in == nil:
		next.Members = append(next.Members, &storepb.Member{Replica: next.NextReplica,
			Server: g.AddServer, Address: g.AddAddress, Role: storepb.MemberRole_LEARNER})
		next.NextReplica++
		step.Text = fmt.Sprintf("adds %s as a learner", g.AddAddress)
		if step.Waits = v.MayAdd(g); step.Waits != "" {
			return step
		}
	case in != nil && in.Role == storepb.MemberRole_LEARNER && !g.Learner:
		return v.comeIn(in, out, next)
	case out == nil:
		return Step{Done: true, Text: "done"}
	case out.Role == storepb.MemberRole_LEARNER:
		remove(next, out)
		step.Text = fmt.Sprintf("removes the learner %s", out.Address)
	case out.Replica == v.Leader:
		return v.handOver(func(m *storepb.Member) bool {
			return m.Role == storepb.MemberRole_VOTER && m.Replica != out.Replica
		})
	default:
		out.Role = storepb.MemberRole_OUTGOING
		step.Text = fmt.Sprintf("lets %s go out of the voters", out.Address)
	}
	step.Waits = v.Lacks(next)
	return step
}

// comeIn makes a learner a voter. If possible, the same step removes another voter.
func (v *View) comeIn(in, out *storepb.Member, next *storepb.Members) Step {
	if !v.Answers(in.Replica) {
		return Step{Text: fmt.Sprintf("sends %s the state", in.Address),
			Waits: "it does not answer yet"}
	}
	if behind := v.Behind(in.Replica); behind != "" {
		return Step{Text: fmt.Sprintf("sends %s the state", in.Address), Waits: behind}
	}
	if out != nil && out.Replica == v.Leader {
		over := v.handOver(func(m *storepb.Member) bool {
			return m.Role == storepb.MemberRole_VOTER && m.Replica != out.Replica
		})
		if over.Transfer != 0 {
			return over
		}
		out = nil // only the newcomer can take the leadership
	}
	step := Step{Next: next, Text: fmt.Sprintf("lets %s vote", in.Address)}
	in.Role = storepb.MemberRole_INCOMING
	if out != nil && out.Role == storepb.MemberRole_VOTER {
		out.Role = storepb.MemberRole_OUTGOING
		step.Text += fmt.Sprintf(" in place of %s", out.Address)
	}
	step.Waits = v.Lacks(next)
	return step
}

// handOver transfers the leadership to the first suitable member that does not leave leadership to
// others at present. If all suitable members do, it takes the first of them.
func (v *View) handOver(may func(*storepb.Member) bool) Step {
	var to *storepb.Member
	for _, m := range v.Members.Members {
		if m.Replica == v.Leader || !may(m) || !v.Answers(m.Replica) || v.Behind(m.Replica) != "" {
			continue
		}
		if !v.Averse(m.Replica) {
			to = m
			break
		}
		if to == nil {
			to = m
		}
	}
	if to != nil {
		return Step{Transfer: to.Replica,
			Text: fmt.Sprintf("hands the lead to %s", to.Address)}
	}
	return Step{Text: "hands the lead over",
		Waits: "no other voter answers and has the newest state"}
}

// Lacks returns why members cannot decide, now or after the end of a joint configuration. It
// returns an empty string if they can.
func (v *View) Lacks(next *storepb.Members) string {
	var silent []string
	answers := func(id keys.ReplicaID) bool {
		return uint64(id) == v.Leader || v.Answers(uint64(id))
	}
	for _, m := range next.Members {
		if m.Role != storepb.MemberRole_LEARNER && !answers(keys.ReplicaID(m.Replica)) {
			silent = append(silent, m.Address)
		}
	}
	c := store.ConfigurationOf(next)
	left := c.Left()
	if c.Quorum(answers) && left.Quorum(answers) {
		return ""
	}
	return fmt.Sprintf("a majority of the voters would not answer: %s", JoinOr(silent))
}

// remove removes a member, and remembers it among the removed members.
func remove(m *storepb.Members, out *storepb.Member) {
	m.Members = slices.DeleteFunc(m.Members,
		func(x *storepb.Member) bool { return x.Replica == out.Replica })
	m.Removed = append(m.Removed, out)
	if n := len(m.Removed); n > maxRemovedMembers {
		m.Removed = slices.Delete(m.Removed, 0, n-maxRemovedMembers)
	}
}

// maxRemovedMembers limits the number of remembered removed members.
const maxRemovedMembers = 64

// leave ends a joint configuration.
func leave(m *storepb.Members) {
	for _, x := range slices.Clone(m.Members) {
		switch x.Role {
		case storepb.MemberRole_OUTGOING:
			remove(m, x)
		case storepb.MemberRole_INCOMING:
			x.Role = storepb.MemberRole_VOTER
		}
	}
}
