package host

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// append turns a MsgStorageAppend into an append of the log; false if the group failed over it.
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

// appended is the context of an append: what the group sends when it is done.
type appended struct {
	group     *Group
	responses []*raftpb.Message
}

// onAppended runs on the log's append worker after each synced batch: peers are answered at once,
// with one message per host for the whole batch, and the shards are woken once each.
func (h *Host) onAppended(batch []*raftlog.Append, err error) {
	var out sends
	out.init()
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
