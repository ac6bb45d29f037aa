package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// stored is what the storage has, or has been given to store.
type stored struct {
	term, vote, commit uint64
	// lastChange is the last entry that changes the configuration which the storage was given;
	// after a start the end of the log, for it may be one.
	lastChange uint64
	// appended is the last entry that the storage was given; it may not have it yet.
	appended uint64
}

// commitAlone says whether an append stores a new commit index and nothing else. It is left out: a
// commit index is found again from the other replicas and from what was applied, so it needs no
// disk, and no request waits for it.
func (s *stored) commitAlone(m *raftpb.Message) bool {
	if len(m.Entries) == 0 && len(m.Responses) == 0 && m.Snapshot == nil &&
		m.GetTerm() == s.term && m.GetVote() == s.vote {
		return true
	}
	if m.Term != nil {
		if len(m.Entries) > 0 || m.GetTerm() != s.term || m.GetVote() != s.vote {
			s.commit = m.GetCommit() // otherwise the log does not write it
		}
		s.term, s.vote = m.GetTerm(), m.GetVote()
	}
	return false
}

// commitWithChange has the commit index stored with an entry that changes the configuration, and
// with those behind it until it is known to be committed. Without the former a replica whose state
// has rolled back could hold the end of a joint configuration without knowing that its beginning is
// committed, and be elected by the voters from before. Without the latter replicas whose states
// have rolled back could not know that the change was committed, and look for voters that are gone.
func (s *stored) commitWithChange(m *raftpb.Message, node *raft.RawNode) {
	for _, e := range m.Entries {
		if e.GetType() == raftpb.EntryConfChangeV2 {
			s.lastChange = e.GetIndex()
		}
	}
	if m.Term != nil || s.commit >= s.lastChange {
		return
	}
	hard := node.BasicStatus().HardState
	m.Term, m.Vote, m.Commit = hard.Term, hard.Vote, hard.Commit
}
