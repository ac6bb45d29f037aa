package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// reads holds the state of read-index requests.
type reads struct {
	// open counts the requests that Raft has not answered, on a leader.
	open int
	// own is the index of the first entry of term ownTerm, in which this replica leads or led.
	own, ownTerm uint64
}

// noteOwn notes the index of the first entry of a term in which this replica leads. A leader begins
// by appending this entry.
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

// commits decides which messages about commits a leader sends to its followers.
type commits struct {
	// told is the index up to which followers must be told of commits: the last entry at the time
	// of the latest read index.
	told uint64
	// heartbeatAnswered is set if a follower has answered a heartbeat since the last Output. Raft
	// may then probe whether that follower lost a message.
	heartbeatAnswered bool
}

// needless reports whether a message does nothing but tell a follower of a new commit index. Such a
// message is not sent: the follower learns of the commit with the next entries, or with the next
// heartbeat. That halves the messages of an entry, and hardly any request waits for it: where
// followers answer reads from what they have just applied, the leader asks for a read index, after
// which followers are told. A follower that has not acknowledged all entries by then is told when
// it has. With Config.TellCommits such messages are sent.
//
// A message without entries has another use: it probes whether a follower that has not acknowledged
// everything has lost a message. Raft does so when the follower answers a heartbeat, and then the
// message is sent. At any other time a follower that is receiving entries steadily (such as the
// slower of two, while the faster one makes the quorum) has an answer on its way.
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
