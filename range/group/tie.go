package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// tie breaks ties between campaigns. When two replicas are left of three and both campaign within a round trip, each grants the other's
// pre-vote, both become candidates, each votes for itself, and nobody leads for another election timeout. So a replica whose own campaign has
// just begun leaves the pre-vote of one with a higher id and the same log unanswered: the other one grants the vote of this one, and
// this one wins. To leave a request for a vote unanswered is always safe, and it is done for no longer than a fraction of an election timeout.
type tie struct {
	// index and term are of the end of the log with which the latest campaign began, and age counts ticks since; 0 index: there was none.
	index, term uint64
	age         int
}

// tieTicks is for how many ticks of an election timeout a campaign has just begun.
func tieTicks(electionTicks int) int { return electionTicks / 3 }

// begun is told of the messages that go out.
func (t *tie) begun(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgPreVote {
		*t = tie{index: m.GetIndex(), term: m.GetLogTerm()}
	}
}

// wins says that a request for a vote stays unanswered.
func (g *Group) wins(m *raftpb.Message) bool {
	t := &g.tie
	return m.GetType() == raftpb.MsgPreVote && m.GetFrom() > uint64(g.config.Self) && t.index != 0 && t.age < tieTicks(g.config.ElectionTicks) &&
		m.GetIndex() == t.index && m.GetLogTerm() == t.term && g.node.BasicStatus().RaftState == raft.StatePreCandidate
}
