package host

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// HandleMessages takes a batch from a peer's host. The host owns the batch from here on.
func (h *Host) HandleMessages(from uint64, b *peerpb.MessageBatch) {
	now := h.now()
	if p := b.GetPing(); p != nil {
		restarted, back := h.peers.Heard(from, p.GetIncarnation(), now)
		h.peers.NoteStatus(from, p)
		h.peers.PingHeard(from, p, now)
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
			h.metrics.refused[group.RefusedSnapshot].Inc() // snapshots come in streams of their own
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

// addressed reports whether a message is for this very replica and comes from the host of its
// sender. A removed replica and its replacement have different ids, so neither receives the other's
// messages.
func (g *Group) addressed(from uint64, m *peerpb.RaftMessage) bool {
	return replicaID(m.GetTo()) == g.Self() && (g.HostOf(replicaID(m.GetFrom())) == from ||
		g.core.WellFormed(m) == "" &&
			g.learn(replicaID(m.GetFrom()), from, len(g.Configuration().Members)))
}

// receive queues a message. It returns true if the caller must queue the group.
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

// LogBehind reports whether so many bytes wait for the log that no more may be added.
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
