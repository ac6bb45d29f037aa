package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// reads are the requests for a read index.
type reads struct {
	// open is how many Raft has not answered, on a leader.
	open int
	// own is the index of the first entry of the term ownTerm, in which this replica leads, or led.
	own, ownTerm uint64
}

// noteOwn notes where the first entry of a term is in which this replica leads. A leader appends
// one as it begins.
func (r *reads) noteOwn(entries []*raftpb.Entry, term uint64) {
	if r.ownTerm == term {
		return
	}
	for _, e := range entries {
		if e.GetTerm() == term {
			r.own, r.ownTerm = e.GetIndex(), term
			return
		}
	}
}

// commits is what a leader knows of what its followers are to be told of commits.
type commits struct {
	// told is up to where followers are to be told what is committed: as far as it was when a read
	// index was asked for last.
	told uint64
	// heartbeatAnswered: a follower has answered a heartbeat since the last Output, so Raft may ask
	// it for what was lost.
	heartbeatAnswered bool
}

// needless says whether a message tells a follower of a new commit index and nothing else. It is
// not sent: the follower learns of it with the next entries, or with the next heartbeat. Without it
// an entry costs half as many messages, and hardly a request waits for it: where followers are to
// answer reads from what they have just applied, the leader asks for a read index, which tells
// them. One that has not acknowledged all of it by then is told when it has. Config.TellCommits has
// it sent.
//
// A message without entries has another use: it asks a follower that has not acknowledged all it
// was sent whether something was lost. Raft asks so when the follower answers a heartbeat, and then
// the message is sent. At any other time a follower that is being sent entries as they come (the
// one of two that is slower, whenever the other has made the quorum) has an answer on its way.
func (c *commits) needless(m *raftpb.Message, node *raft.RawNode) bool {
	if m.GetType() != raftpb.MsgApp || len(m.Entries) > 0 {
		return false
	}
	tells := m.GetCommit() <= c.told
	needless := false
	node.WithProgress(func(id uint64, _ raft.ProgressType, p trackerProgress) {
		if id == m.GetTo() {
			needless = p.State == stateReplicate && (p.Match >= m.GetIndex() && !tells ||
				p.Match < m.GetIndex() && !c.heartbeatAnswered)
		}
	})
	return needless
}
