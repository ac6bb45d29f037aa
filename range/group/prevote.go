package group

import "go.etcd.io/raft/v3/raftpb"

// tieBreak breaks ties between campaigns. When two replicas are left of three and both campaign
// within a round trip, each grants the other's pre-vote, both become candidates, each votes for
// itself, and no replica leads for another election timeout. So a replica whose own campaign has
// just begun looks at the pre-vote of one with a higher id and the same log at its next tick only.
// By then the other one has granted the vote of this one, which has won; or it has not, because it
// had heard the old leader more lately, and gets this one's.
type tieBreak struct {
	// index and term are of the end of the log with which the latest campaign began; 0 index: there
	// was none, or not just now.
	index, term uint64
	// later are the requests that wait for the tick, one of each replica at most.
	later []*raftpb.Message
}

// begun is told of the messages that go out.
func (t *tieBreak) begun(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgPreVote {
		t.index, t.term = m.GetIndex(), m.GetLogTerm()
	}
}

// tick ends a campaign's beginning: what was put off is considered with the next Output.
func (t *tieBreak) tick(p *leasePromise) {
	p.votes = append(p.votes, t.later...)
	clear(t.later)
	t.later, t.index = t.later[:0], 0
}
