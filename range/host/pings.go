package host

import (
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/peer"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// A host pings each other host once per tick. To two idle processes a message costs far more than
// its bytes: a system call, and a thread that wakes up. So a ping travels with heartbeats for the
// same host, or with answers to them, if there are any, and replaces the ping of the next tick.
// When heartbeats end, one gap between pings is a little more than two ticks long; a host counts as
// silent only after an election timeout.
//
// News of sleeping groups travels only with the pings of ticks. While there is any, a ping is sent
// at every tick, and pings do not travel with other messages.

// ownStatus is the status of this host that its pings carry.
type ownStatus struct {
	// incarnation names the process.
	incarnation uint64
	// averse, recovering: see SetLeaderAverse. leaving: see Drain.
	averse, recovering, leaving atomic.Bool
	// pings counts the pings made.
	pings atomic.Uint64
}

// avoidsLead reports whether this host leaves leaderships to others.
func (s *ownStatus) avoidsLead() bool { return s.averse.Load() || s.leaving.Load() }

// Leaving reports whether Drain has begun.
func (s *ownStatus) Leaving() bool { return s.leaving.Load() }

// SetLeaderAverse sets whether this host wants to lead; pings tell the peers. The groups of an
// averse host leave campaigns to other replicas, for a limited time, and only while one of those is
// on a host that is not averse (group.SetLeaderAverse). recovering says that an averse host is able
// to lead again, and waits to see whether that lasts.
func (s *ownStatus) SetLeaderAverse(averse, recovering bool) {
	s.recovering.Store(averse && recovering)
	s.averse.Store(averse)
}

// sendControl sends messages of peer.ClassControl, with a ping if one is due soon.
func (h *Host) sendControl(host uint64, messages []*peerpb.RaftMessage) {
	if h.sleepers.tells(host) || !h.peers.PingBeside(host, h.now(), int64(h.config.Tick)*3/4) {
		h.transport.Send(host, peer.ClassControl, messages)
		return
	}
	h.ping(host, h.round.Load(), messages)
}

// pingPeers pings, at a tick, the hosts that no ping with other messages has reached since about
// the last tick. The tolerance is for ticks of two hosts that nearly coincide.
func (h *Host) pingPeers(hosts []uint64, round uint64, now int64) {
	for _, host := range hosts {
		if !h.peers.PingedLately(host, now, int64(h.config.Tick)*9/8) || h.sleepers.tells(host) {
			h.ping(host, round, nil)
		}
	}
}

// ping sends this host's status to a peer. round is the current round of closing timestamps for
// sleeping groups; 0: the ping carries nothing about them.
//
// INVARIANT: a ping's number is taken before the status is read. Several goroutines make pings,
// which may leave out of order: of two pings, the one with the lower number has the older status.
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
	h.peers.PingSent(host, ping, h.now())
	if round != 0 {
		ping.Round, ping.Sleeping, ping.Answer = round, h.leading.Ping(host), h.following.Answer(host)
	}
	h.transport.Ping(host, ping, beside)
}

// PingNow sends this host's status to all peers without waiting for the next tick.
func (h *Host) PingNow() {
	if !h.started.Load() {
		return
	}
	for _, host := range h.peers.All() {
		h.ping(host, 0, nil)
	}
}
