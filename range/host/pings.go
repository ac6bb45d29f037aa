package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A host pings each other one once in a tick. A message costs two idle processes far more than its
// bytes: a system call, and a thread that wakes up. So a ping goes with heartbeats, or with the
// answers to heartbeats, if there are any for that host, and takes the place of the one that would
// be due at the next tick. When heartbeats end, little more than two ticks pass between a ping and
// the next, once; silence is an election timeout.
//
// What is said of groups that sleep goes with the pings of ticks: if there is any, pings come with
// every tick, and with no other message.

// pingedLately says whether the last ping with other messages to a host was less than so long ago.
func (p *peers) pingedLately(host uint64, now, least int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	return x != nil && x.pinged != 0 && now-x.pinged < least
}

// pingBeside notes that a host is pinged now with other messages, and returns true, unless the last
// such ping was less than so long ago.
func (p *peers) pingBeside(host uint64, now, least int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil || x.pinged != 0 && now-x.pinged < least {
		return false
	}
	x.pinged = now
	return true
}

// sleepTogether says whether there is something to be told to a host, or answered, of groups that
// sleep.
func (h *Host) sleepTogether(host uint64) bool {
	return h.leading.Tells(host) || h.following.Owes(host)
}

// sendControl sends messages of peer.ClassControl, with a ping if it is about time for one.
func (h *Host) sendControl(host uint64, messages []*peerpb.RaftMessage) {
	if h.sleepTogether(host) || !h.peers.pingBeside(host, h.now(), int64(h.config.Tick)*3/4) {
		h.transport.Send(host, peer.ClassControl, messages)
		return
	}
	h.ping(host, h.round.Load(), messages)
}

// pingPeers pings at a tick those hosts that were not pinged with other messages since the one
// before, or about then: the ticks of two hosts may nearly fall together.
func (h *Host) pingPeers(hosts []uint64, round uint64, now int64) {
	for _, host := range hosts {
		if !h.peers.pingedLately(host, now, int64(h.config.Tick)*9/8) || h.sleepTogether(host) {
			h.ping(host, round, nil)
		}
	}
}

// ping tells a peer how this host is. round is that of what is closed for groups that sleep; 0: the
// ping says nothing of them.
//
// INVARIANT: the number of a ping is taken before it is looked how this host is. Pings are made by
// several goroutines, and may leave in another order: what a ping with a lower number says is
// older.
func (h *Host) ping(host, round uint64, beside []*peerpb.RaftMessage) {
	number := h.pings.Add(1)
	ts := h.config.Clock.Now()
	wall, _ := h.config.Clock.Machine()
	ping := &peerpb.HostPing{
		Incarnation: h.incarnation, Number: number, Wall: uint64(ts.Wall), Logical: ts.Logical,
		Physical: uint64(wall),
		Averse:   h.averse.Load() || h.leaving.Load(), Recovering: h.recovering.Load(),
		Leaving: h.leaving.Load(), NoRoom: h.disk.none.Load(),
		RoomShare:  h.disk.takesShare.Load(),
		SyncMicros: uint64(time.Duration(h.slowness.sync.Load()).Microseconds()),
	}
	if ping.NoRoom {
		ping.RoomBytes = h.disk.bytes()
	}
	if round != 0 {
		ping.Round, ping.Sleeping, ping.Answer = round, h.leading.Ping(host), h.following.Answer(host)
	}
	h.transport.Ping(host, ping, beside)
}

// PingNow tells all peers how this host is, without waiting for the next tick.
func (h *Host) PingNow() {
	if !h.started.Load() {
		return
	}
	for _, host := range h.peers.all() {
		h.ping(host, 0, nil)
	}
}

// all lists the peers.
func (p *peers) all() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]uint64, 0, len(p.hosts))
	for id := range p.hosts {
		all = append(all, id)
	}
	return all
}
