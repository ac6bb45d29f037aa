package host

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// HandleMessages takes a batch from a peer's host; it belongs to this host from here on.
func (h *Host) HandleMessages(from uint64, b *peerpb.MessageBatch) {
	now := h.now()
	if p := b.GetPing(); p != nil {
		restarted, back := h.peers.Heard(from, p.GetIncarnation(), now)
		h.peers.NoteStatus(from, p)
		if restarted {
			h.leading.Forget(from)
			// A new process knows nothing of the groups that slept under its leadership.
			h.wakes.followersOf(from, true)
		}
		if restarted || back {
			h.wakes.leadersWithout(from)
		}
		h.clocks.Heard(from, p.GetPhysical())
		h.hearClosed(from, p)
	} else if _, back := h.peers.Heard(from, 0, now); back {
		h.wakes.leadersWithout(from)
	}
	messages := b.GetMessages()
	if len(messages) == 0 {
		return
	}
	var room [8]*shard
	shards := room[:0]
	h.mu.RLock()
	for _, m := range messages {
		if m == nil {
			continue
		}
		g := h.mu.groups[keys.PartitionID(m.GetGroup())]
		if g == nil && h.pendingVotes.hold(from, m, now) {
			continue
		}
		if g == nil || !g.addressed(from, m) {
			h.metrics.misaddressed.Inc()
			continue
		}
		if raftpb.MessageType(m.GetType()) == raftpb.MsgSnap && !m.GetWake() {
			h.metrics.refused[group.RefusedSnapshot].Inc() // it has a stream of its own
			continue
		}
		if g.receive(m) {
			g.shard.leave(g)
			shards = withShard(shards, g.shard)
		}
	}
	h.mu.RUnlock()
	h.step(shards...)
}

// addressed says whether a message is for this very replica, and from the host where its sender is.
// A replica that was removed and one that took its place have different ids: neither hears what is
// meant for the other.
func (g *Group) addressed(from uint64, m *peerpb.RaftMessage) bool {
	return replicaID(m.GetTo()) == g.Self() && (g.HostOf(replicaID(m.GetFrom())) == from ||
		g.core.WellFormed(m) == "" &&
			g.learn(replicaID(m.GetFrom()), from, len(g.Configuration().Members)))
}

// receive queues a message; true if the group was not queued already.
func (g *Group) receive(m *peerpb.RaftMessage) bool {
	if !g.host.disk.takes(g, m) {
		g.host.metrics.refusedAppends.Inc()
		return false
	}
	size := messageOverhead(m)
	for _, e := range m.GetEntries() {
		size += int(entrySize(e))
	}
	behind := len(m.GetEntries()) > 0 && g.host.LogBehind()
	queue, full := g.inbox.receive(m, size, g.host.now(), behind)
	if full {
		g.host.metrics.inboxFull.Inc()
	}
	return queue
}

// LogBehind says whether so much waits for the log that no more is to be added.
func (h *Host) LogBehind() bool { return h.log.Pending() > h.config.MaxPendingLogBytes }

// HandleUnreachable tells that messages to a host were lost.
func (h *Host) HandleUnreachable(host uint64) {
	if !h.peers.MayReport(host, h.now(), int64(h.config.electionTimeout())/2) {
		return
	}
	h.Groups(func(g *Group) {
		if l := g.leadership.Load(); !l.IsLeader || !g.stirring.Load() {
			return
		}
		for id, at := range g.hosts() {
			if at == host {
				g.do(func(g *Group) { g.core.Unreachable(id) })
			}
		}
	})
}
