package host

import (
	"sync"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// append turns a MsgStorageAppend into an append to the log. It returns false if the group failed.
func (s *shard) append(g *Group, m *raftpb.Message) bool {
	a := &raftlog.Append{Group: g.storage, Entries: m.Entries,
		Context: &appended{group: g, responses: m.Responses}}
	if m.Term != nil {
		a.HardState = &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit}
	}
	if snap := m.GetSnapshot(); snap.GetMetadata().GetIndex() != 0 {
		a.Snapshot.Index, a.Snapshot.Term = snap.GetMetadata().GetIndex(), snap.GetMetadata().GetTerm()
		return g.install(a)
	}
	g.work.Add(1)
	if n := len(g.installations); n > 0 {
		newest := g.installations[n-1]
		newest.held = append(newest.held, a)
		return true
	}
	s.submit(a)
	return true
}

// appended is the context of an append: the messages that the group sends when the append is
// durable.
type appended struct {
	group     *Group
	responses []*raftpb.Message
}

// onAppended runs on the log's append worker after each synced batch. It answers the peers at once,
// with one message per host for the whole batch, and wakes each shard once.
func (h *Host) onAppended(batch []*raftlog.Append, err error) {
	var out sends
	out.init()
	now := time.Now()
	wake := make(map[*shard][]*Group, len(h.shards))
	for _, a := range batch {
		c := a.Context.(*appended)
		g := c.group
		if a.Snapshot.Index != 0 {
			g.replacing.Add(-1)
		}
		if err != nil {
			if err != raftlog.ErrClosed {
				g.failFrom(err)
			}
			g.work.Done()
			continue
		}
		if n := len(a.Entries); n > 0 {
			g.logged.note(appendTimes{first: a.Entries[0].GetIndex(), last: a.Entries[n-1].GetIndex(),
				writing: a.Writing, synced: now})
		}
		var local []*raftpb.Message
		for _, m := range c.responses {
			if replicaID(m.GetTo()) == g.Self() {
				local = append(local, m)
			} else {
				out.add(g, g.core.Outgoing(m))
			}
		}
		if len(local) > 0 && g.inbox.answer(local) {
			wake[g.shard] = append(wake[g.shard], g)
		}
		g.work.Done()
	}
	if err == nil && h.transport != nil {
		out.flush(h)
	}
	for s, groups := range wake {
		s.enqueue(groups...)
	}
}

// keptTimes is the number of appends whose times a group remembers. A leader has fewer appends in
// flight.
const keptTimes = 8

// entryTimes remembers when the latest appends of a group were written to the log, so that the
// state machine can say what an entry waited for. The append worker writes it, the apply workers
// read it.
type entryTimes struct {
	mu   sync.Mutex
	ring [keptTimes]appendTimes
	next int
}

// appendTimes holds the times of one append, whose entries have the indexes first to last.
type appendTimes struct {
	first, last     uint64
	writing, synced time.Time
}

// note remembers an append.
func (t *entryTimes) note(a appendTimes) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ring[t.next] = a
	t.next = (t.next + 1) % keptTimes
}

// of returns the times of an entry, from the latest append that contains it; zero if the group has
// forgotten that append.
func (t *entryTimes) of(index uint64) group.Times {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range keptTimes {
		a := &t.ring[(t.next+keptTimes-1-i)%keptTimes]
		if a.first <= index && index <= a.last && a.last != 0 {
			return group.Times{Writing: a.writing, Synced: a.synced}
		}
	}
	return group.Times{}
}
