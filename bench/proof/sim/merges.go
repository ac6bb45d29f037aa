package sim

import (
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// merges recognises the moments of merges by the Raft messages between the servers.
type merges struct {
	mu      sync.Mutex
	waiting []*mergeWait
	// committing has the merges whose commit no follower has heard of: for each partition the index
	// of the entry.
	committing map[uint64]uint64
}

// mergeMoment is a message about a merge from a partition's leader to a follower.
type mergeMoment struct {
	partition uint64
	from, to  int
}

// mergeWait is a fault that waits for a moment of a merge.
type mergeWait struct {
	moment string
	skip   int
	tell   chan<- mergeMoment
	// atOnce, if not nil, is called before the message is sent.
	atOnce func(mergeMoment)
}

// awaitMerge registers a fault that waits for a moment of a merge. Its channel must have room for
// the moment.
func (w *World) awaitMerge(wait *mergeWait) {
	w.merges.mu.Lock()
	defer w.merges.mu.Unlock()
	w.merges.waiting = append(w.merges.waiting, wait)
}

// forgetMerge ends a wait.
func (w *World) forgetMerge(wait *mergeWait) {
	w.merges.mu.Lock()
	defer w.merges.mu.Unlock()
	w.merges.waiting = slices.DeleteFunc(w.merges.waiting,
		func(other *mergeWait) bool { return other == wait })
}

// observe looks at one message. The servers' workers call it.
func (m *merges) observe(s kvtest.Sent) {
	kind := raftpb.MessageType(s.Message.GetType())
	if s.Realm != "data" || s.Message.GetWake() ||
		kind != raftpb.MsgApp && kind != raftpb.MsgHeartbeat {
		return
	}
	at := mergeMoment{s.Message.GetGroup(), s.From, s.To}
	m.mu.Lock()
	defer m.mu.Unlock()
	if index := m.committing[at.partition]; index > 0 && s.Message.GetCommit() >= index {
		delete(m.committing, at.partition)
		m.cameLocked("commit", at)
	}
	if kind != raftpb.MsgApp {
		return
	}
	for _, e := range s.Message.GetEntries() {
		if e.GetType() != uint32(raftpb.EntryNormal) {
			continue
		}
		entry, err := proposal.Decode(e.GetData())
		if err != nil {
			continue // the first entry of a term is empty
		}
		switch entry.Kind {
		case proposal.KindFreeze:
			m.cameLocked("freeze", at)
		case proposal.KindMerge:
			if m.committing == nil {
				m.committing = make(map[uint64]uint64)
			}
			if s.Message.GetCommit() < e.GetIndex() {
				m.committing[at.partition] = e.GetIndex()
			}
			m.cameLocked("merge", at)
		}
	}
}

// cameLocked passes a moment to the faults that wait for it.
func (m *merges) cameLocked(moment string, at mergeMoment) {
	m.waiting = slices.DeleteFunc(m.waiting, func(wait *mergeWait) bool {
		if wait.moment != moment {
			return false
		}
		if wait.skip--; wait.skip >= 0 {
			return false
		}
		if wait.atOnce != nil {
			wait.atOnce(at)
		}
		wait.tell <- at
		return true
	})
}
