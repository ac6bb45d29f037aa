package group

import "go.etcd.io/raft/v3/raftpb"

// tieBreak breaks ties between campaigns. Suppose two replicas are left of three, and both campaign
// within a round trip. Each grants the other's pre-vote, both become candidates, each votes for
// itself, and no replica leads for another election timeout. So a replica whose own campaign has
// just begun puts off, until its next tick, a pre-vote for a replica with a higher id and the same
// log. By then the other replica has either granted this replica's pre-vote, and this replica has
// won; or it has refused, because it heard the old leader more recently, and then it gets this
// replica's pre-vote.
type tieBreak struct {
	// index and term describe the last entry of the log when the latest campaign began; index 0: no
	// campaign has begun since the last tick.
	index, term uint64
	// later holds the requests that wait for the tick, at most one of each replica.
	later []*raftpb.Message
}

// begun is called for each outgoing message, and notes the beginning of a campaign.
func (t *tieBreak) begun(m *raftpb.Message) {
	if m.GetType() == raftpb.MsgPreVote {
		t.index, t.term = m.GetIndex(), m.GetLogTerm()
	}
}

// tick ends the delay: the requests that were put off are considered with the next Output.
func (t *tieBreak) tick(p *leasePromise) {
	p.votes = append(p.votes, t.later...)
	clear(t.later)
	t.later, t.index = t.later[:0], 0
}
