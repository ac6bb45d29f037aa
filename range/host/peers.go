package host

import (
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// peers are the hosts that share a group with this one.
type peers struct {
	mu    sync.Mutex
	hosts map[uint64]*hostState
	// withoutRoom counts those whose disk is below its reserve, for readers without the lock.
	withoutRoom atomic.Int32
	// gone counts those whose process is gone, for readers without the lock.
	gone atomic.Int32
}

type hostState struct {
	groups      int
	lastHeard   int64 // monotonic; when it was added, if nothing was heard yet
	pinged      int64 // monotonic; when it was with other messages, 0: not yet
	incarnation uint64
	down        bool
	// refused: its machine has refused a connection since something was heard of it. gone: so it
	// has, and the host has been silent (gone.go).
	refused, gone bool
	// returned is when it was heard again after it had been silent, or as another process;
	// monotonic, 0: never.
	returned int64
	// status is of the latest ping: the one of statusNumber, of the process statusIncarnation.
	status                          hostStatus
	statusNumber, statusIncarnation uint64
	// reported is when its groups were told last that messages to it were lost.
	reported int64
}

func (p *peers) init() { p.hosts = make(map[uint64]*hostState) }

func (p *peers) add(host uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil {
		x = &hostState{}
		p.hosts[host] = x
	}
	x.groups++
}

func (p *peers) drop(host uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.hosts[host]; x != nil {
		if x.groups--; x.groups == 0 {
			if x.status.noRoom {
				p.withoutRoom.Add(-1)
			}
			p.backLocked(x)
			delete(p.hosts, host)
		}
	}
}

// heard notes a heartbeat. restarted says that the process is another one than before, back that it
// had been silent.
func (p *peers) heard(host uint64, incarnation uint64, now int64) (restarted, back bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil {
		return false, false
	}
	back = x.down
	x.lastHeard, x.down = now, false
	p.backLocked(x)
	if back {
		x.returned = now
	}
	if incarnation == 0 || incarnation == x.incarnation {
		return false, back
	}
	if restarted = x.incarnation != 0; restarted {
		x.returned = now
	}
	x.incarnation = incarnation
	return restarted, back
}

// mayReport says whether losses on the way to a host are to be told to the groups again: telling is
// dear, and once in a while is enough.
func (p *peers) mayReport(host uint64, now, interval int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil || (x.reported != 0 && now-x.reported < interval) {
		return false
	}
	x.reported = now
	return true
}

// silent returns the hosts that have newly been silent for the timeout, and all hosts.
func (p *peers) silent(now, timeout int64) (silent, all []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, x := range p.hosts {
		all = append(all, id)
		if x.lastHeard == 0 {
			x.lastHeard = now
		}
		if !x.down && now-x.lastHeard >= timeout {
			x.down = true
			silent = append(silent, id)
		}
	}
	return silent, all
}

// Peers is how many hosts share a group with this one, and how many of them have been silent for an
// election timeout.
func (h *Host) Peers() (all, silent int) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	for _, x := range h.peers.hosts {
		if x.down {
			silent++
		}
	}
	return len(h.peers.hosts), silent
}

// HandleMessages takes a batch from a peer's host; it belongs to this host from here on.
func (h *Host) HandleMessages(from uint64, b *peerpb.MessageBatch) {
	now := h.now()
	if p := b.GetPing(); p != nil {
		restarted, back := h.peers.heard(from, p.GetIncarnation(), now)
		h.peers.noteStatus(from, p)
		if restarted {
			h.leading.Forget(from)
			// A new process knows nothing of the groups that slept under its leadership.
			h.wakeFollowersOf(from, true)
		}
		if restarted || back {
			h.wakeLeadersWithout(from)
		}
		h.clocks.Heard(from, p.GetPhysical())
		h.hearClosed(from, p)
	} else if _, back := h.peers.heard(from, 0, now); back {
		h.wakeLeadersWithout(from)
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
	return replicaID(m.GetTo()) == g.self && (g.HostOf(replicaID(m.GetFrom())) == from ||
		g.core.WellFormed(m) == "" && g.learn(replicaID(m.GetFrom()), from))
}

// receive queues a message; true if the group was not queued already.
func (g *Group) receive(m *peerpb.RaftMessage) bool {
	in := &g.inbox
	if !g.host.disk.takes(g, m) {
		g.host.metrics.refusedAppends.Inc()
		return false
	}
	size := messageOverhead(m)
	for _, e := range m.GetEntries() {
		size += int(entrySize(e))
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.stopped {
		return false
	}
	if in.bytes+size > maxInboxBytes && in.bytes > 0 ||
		!g.host.hasRoomFor(size, len(m.GetEntries()) > 0) {
		g.host.metrics.inboxFull.Inc()
		return false
	}
	in.bytes += size
	g.host.inboxBytes.Add(int64(size))
	in.messages = append(in.messages, m)
	if in.queued {
		return false
	}
	in.queued = true
	return true
}

// hasRoomFor says whether a message can be taken in, as far as the whole process goes. Raft sends
// again what is dropped. Entries are dropped first: what keeps leaders in office, and acknowledges
// what is stored, frees memory.
func (h *Host) hasRoomFor(size int, entries bool) bool {
	limit, held := h.config.MaxInboxBytes, h.inboxBytes.Load()
	if !entries {
		return held+int64(size) <= limit+limit/4
	}
	if h.LogBehind() {
		return false
	}
	// A message that takes more than half of the room would never find that beside others. It gets in
	// while others have half, and they get no more until it has come again.
	half, now := limit/2, h.now()
	if int64(size) > half {
		if held > half {
			h.largeRefused.Store(max(now, 1))
			return false
		}
		h.largeRefused.Store(0)
		return true
	}
	if refused := h.largeRefused.Load(); refused > 0 && now-refused < int64(largeComesAgain) {
		limit = half
	}
	return held+int64(size) <= limit
}

// largeComesAgain is for how long room is left for a large message that was refused. Its sender is
// told by the next heartbeat that it is missing.
const largeComesAgain = time.Second

// LogBehind says whether so much waits for the log that no more is to be added.
func (h *Host) LogBehind() bool { return h.log.Pending() > h.config.MaxPendingLogBytes }

// HandleUnreachable tells that messages to a host were lost.
func (h *Host) HandleUnreachable(host uint64) {
	if !h.peers.mayReport(host, h.now(), int64(h.config.electionTimeout())/2) {
		return
	}
	h.mu.RLock()
	var groups []*Group
	for _, g := range h.mu.groups {
		if l := g.leadership.Load(); l.IsLeader && g.stirring.Load() {
			groups = append(groups, g)
		}
	}
	h.mu.RUnlock()
	for _, g := range groups {
		for id, at := range g.hosts() {
			if at == host {
				g.do(func(g *Group) { g.core.Unreachable(id) })
			}
		}
	}
}

func (g *Group) onHost(host uint64) (keys.ReplicaID, bool) {
	for id, at := range g.hosts() {
		if at == host {
			return id, true
		}
	}
	return 0, false
}
