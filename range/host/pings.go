package host

import (
	"sync/atomic"
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

// ownStatus is what this host says of itself in its pings.
type ownStatus struct {
	// incarnation names the process.
	incarnation uint64
	// averse, recovering: see SetLeaderAverse. leaving: see Drain.
	averse, recovering, leaving atomic.Bool
	// pings is how many pings were made.
	pings atomic.Uint64
}

// avoidsLead says whether this host leaves leaderships to others.
func (s *ownStatus) avoidsLead() bool { return s.averse.Load() || s.leaving.Load() }

// Leaving says whether Drain has begun.
func (s *ownStatus) Leaving() bool { return s.leaving.Load() }

// SetLeaderAverse tells the peers in pings that this host does not want to lead, and has each of
// its groups leave campaigns to other replicas, as long as one of them is on a host that is not
// averse, and not for ever (group.SetLeaderAverse). A host that is recovering is able to lead, and
// only waits whether that lasts.
func (s *ownStatus) SetLeaderAverse(averse, recovering bool) {
	s.recovering.Store(averse && recovering)
	s.averse.Store(averse)
}

// sendControl sends messages of peer.ClassControl, with a ping if it is about time for one.
func (h *Host) sendControl(host uint64, messages []*peerpb.RaftMessage) {
	if h.sleepers.tells(host) || !h.peers.PingBeside(host, h.now(), int64(h.config.Tick)*3/4) {
		h.transport.Send(host, peer.ClassControl, messages)
		return
	}
	h.ping(host, h.round.Load(), messages)
}

// pingPeers pings at a tick those hosts that were not pinged with other messages since the one
// before, or about then: the ticks of two hosts may nearly fall together.
func (h *Host) pingPeers(hosts []uint64, round uint64, now int64) {
	for _, host := range hosts {
		if !h.peers.PingedLately(host, now, int64(h.config.Tick)*9/8) || h.sleepers.tells(host) {
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
		Averse:   h.avoidsLead(), Recovering: h.recovering.Load(),
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
	for _, host := range h.peers.All() {
		h.ping(host, 0, nil)
	}
}
