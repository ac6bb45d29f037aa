package membership

import (
	"fmt"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// A change of the core's members has no state but its goal, like an operator of a partition: the
// next step follows from the present members. So any leader of the core can continue it, and a step
// that comes twice does nothing the second time.
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
// A core of one member cannot hand over before the newcomer votes: the newcomer comes in first,
// takes the leadership, and then the other goes.

// coreStep is the next step.
type coreStep struct {
	// done is set if nothing is left to do.
	done bool
	// next are the members that follow; nil: they stay as they are.
	next *storepb.Members
	// transfer is the member that is handed the leadership; 0: none.
	transfer uint64
	// text says what is done, in words, and waits what it waits for; empty: it can be done.
	text, waits string
}

// coreView is the state of the core at one moment, on its leader.
type coreView struct {
	members *storepb.Members
	leader  uint64
	// answers says whether a member was heard of lately.
	answers func(replica uint64) bool
	// averse reports whether a member leaves leadership to others at present.
	averse func(replica uint64) bool
	// behind returns what a member lacks, in words; empty: next to nothing.
	behind func(replica uint64) string
	// mayAdd returns why a goal's newcomer, which is no member yet, cannot be added now; empty: it
	// can.
	mayAdd func(*serverpb.CoreGoal) string
}

// coreStepOf is the next step towards a goal.
func coreStepOf(g *serverpb.CoreGoal, v *coreView) coreStep {
	now := store.ConfigurationOf(v.members)
	next := proto.Clone(v.members).(*storepb.Members)
	next.Version++
	in, out := memberByServer(next, g.AddServer), memberByReplica(next, g.RemoveReplica)
	step := coreStep{next: next}
	switch {
	case now.Joint():
		if !now.Electable(keys.ReplicaID(v.leader)) {
			return v.handOver(func(m *storepb.Member) bool {
				return m.Role == storepb.MemberRole_VOTER || m.Role == storepb.MemberRole_INCOMING
			})
		}
		leaveCore(next)
		step.text = "ends the change of voters"
	case g.AddServer != 0 && in == nil:
		next.Members = append(next.Members, &storepb.Member{Replica: next.NextReplica,
			Server: g.AddServer, Address: g.AddAddress, Role: storepb.MemberRole_LEARNER})
		next.NextReplica++
		step.text = fmt.Sprintf("adds %s as a learner", g.AddAddress)
		if step.waits = v.mayAdd(g); step.waits != "" {
			return step
		}
	case in != nil && in.Role == storepb.MemberRole_LEARNER && !g.Learner:
		return v.comeIn(in, out, next)
	case out == nil:
		return coreStep{done: true, text: "done"}
	case out.Role == storepb.MemberRole_LEARNER:
		removeMember(next, out)
		step.text = fmt.Sprintf("removes the learner %s", out.Address)
	case out.Replica == v.leader:
		return v.handOver(func(m *storepb.Member) bool {
			return m.Role == storepb.MemberRole_VOTER && m.Replica != out.Replica
		})
	default:
		out.Role = storepb.MemberRole_OUTGOING
		step.text = fmt.Sprintf("lets %s go out of the voters", out.Address)
	}
	step.waits = v.lacks(next)
	return step
}

// comeIn lets a learner vote, and another member go out, if it can with the same step.
func (v *coreView) comeIn(in, out *storepb.Member, next *storepb.Members) coreStep {
	if !v.answers(in.Replica) {
		return coreStep{text: fmt.Sprintf("sends %s the state", in.Address),
			waits: "it does not answer yet"}
	}
	if behind := v.behind(in.Replica); behind != "" {
		return coreStep{text: fmt.Sprintf("sends %s the state", in.Address), waits: behind}
	}
	if out != nil && out.Replica == v.leader {
		over := v.handOver(func(m *storepb.Member) bool {
			return m.Role == storepb.MemberRole_VOTER && m.Replica != out.Replica
		})
		if over.transfer != 0 {
			return over
		}
		out = nil // only the newcomer can take the leadership
	}
	step := coreStep{next: next, text: fmt.Sprintf("lets %s vote", in.Address)}
	in.Role = storepb.MemberRole_INCOMING
	if out != nil && out.Role == storepb.MemberRole_VOTER {
		out.Role = storepb.MemberRole_OUTGOING
		step.text += fmt.Sprintf(" in place of %s", out.Address)
	}
	step.waits = v.lacks(next)
	return step
}

// handOver hands the leadership to the first member that can take it, among those that do not leave
// it to others at present; or among all, if all of them do.
func (v *coreView) handOver(may func(*storepb.Member) bool) coreStep {
	var to *storepb.Member
	for _, m := range v.members.Members {
		if m.Replica == v.leader || !may(m) || !v.answers(m.Replica) || v.behind(m.Replica) != "" {
			continue
		}
		if !v.averse(m.Replica) {
			to = m
			break
		}
		if to == nil {
			to = m
		}
	}
	if to != nil {
		return coreStep{transfer: to.Replica,
			text: fmt.Sprintf("hands the lead to %s", to.Address)}
	}
	return coreStep{text: "hands the lead over",
		waits: "no other voter answers and has the newest state"}
}

// lacks returns what keeps members from deciding, also after the end of a joint configuration that
// they make up; empty: nothing.
func (v *coreView) lacks(next *storepb.Members) string {
	var silent []string
	answers := func(id keys.ReplicaID) bool {
		return uint64(id) == v.leader || v.answers(uint64(id))
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
	return fmt.Sprintf("a majority of the voters would not answer: %s", joinOr(silent))
}

func memberByServer(m *storepb.Members, server uint64) *storepb.Member {
	return memberWhere(m, func(x *storepb.Member) bool { return server != 0 && x.Server == server })
}

func memberByReplica(m *storepb.Members, id uint64) *storepb.Member {
	return memberWhere(m, func(x *storepb.Member) bool { return id != 0 && x.Replica == id })
}

func memberWhere(m *storepb.Members, is func(*storepb.Member) bool) *storepb.Member {
	if i := slices.IndexFunc(m.GetMembers(), is); i >= 0 {
		return m.Members[i]
	}
	return nil
}

// removeMember takes a member out, and remembers it among the removed.
func removeMember(m *storepb.Members, out *storepb.Member) {
	m.Members = slices.DeleteFunc(m.Members,
		func(x *storepb.Member) bool { return x.Replica == out.Replica })
	m.Removed = append(m.Removed, out)
	if n := len(m.Removed); n > maxRemovedMembers {
		m.Removed = slices.Delete(m.Removed, 0, n-maxRemovedMembers)
	}
}

// maxRemovedMembers is how many removed members are remembered.
const maxRemovedMembers = 64

// leaveCore ends a joint configuration.
func leaveCore(m *storepb.Members) {
	for _, x := range slices.Clone(m.Members) {
		switch x.Role {
		case storepb.MemberRole_OUTGOING:
			removeMember(m, x)
		case storepb.MemberRole_INCOMING:
			x.Role = storepb.MemberRole_VOTER
		}
	}
}

// voters counts the members that decide when everything under way is done.
func voters(m *storepb.Members) (n int) {
	c := store.ConfigurationOf(m)
	for _, x := range c.Members {
		if x.Role == group.Voter || x.Role == group.Incoming {
			n++
		}
	}
	return n
}
