package group

import (
	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
)

// stored describes what the storage holds or was told to store.
type stored struct {
	term, vote, commit uint64
	// lastChange is the index of the last entry given to the storage that changes the
	// configuration; after a start it is the end of the log, which may be such an entry.
	lastChange uint64
	// appended is the last index that was given to the storage, which may not have stored it yet.
	appended uint64
}

// commitAlone reports whether an append stores a new commit index and nothing else. Such an append
// is skipped: the commit index can be found again from the other replicas and from what was
// applied, and no request waits for it to be on disk.
func (s *stored) commitAlone(m *raftpb.Message) bool {
	if len(m.Entries) == 0 && len(m.Responses) == 0 && m.Snapshot == nil &&
		m.GetTerm() == s.term && m.GetVote() == s.vote {
		return true
	}
	if m.Term != nil {
		if len(m.Entries) > 0 || m.GetTerm() != s.term || m.GetVote() != s.vote {
			s.commit = m.GetCommit() // otherwise the log does not write the commit index
		}
		s.term, s.vote = m.GetTerm(), m.GetVote()
	}
	return false
}

// commitWithChange stores the commit index with an entry that changes the configuration, and with
// the entries behind it until the change is known to be committed. Without the first, a replica
// whose state has rolled back could hold the end of a joint configuration without knowing that its
// beginning is committed, and be elected by the former voters. Without the second, replicas whose
// states have rolled back could not know that the change was committed, and would ask voters that
// are gone.
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
