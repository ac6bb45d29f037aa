package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// hostStatus is what a host says of itself in its pings, besides the time.
type hostStatus struct {
	// averse: it does not want to lead. recovering: it would lead all the same if no better one
	// can. leaving: it is about to end. noRoom: its disk is below its reserve, and it stores no
	// entries that add data.
	averse, recovering, leaving, noRoom bool
	// share is the smallest of which it stores entries all the same, if it has no room; NoShare:
	// none.
	share group.Share
	// roomBytes is for how many bytes of entries that add data it has room all the same.
	roomBytes int64
	// sync is how long its log takes to sync a write; 0: it is not known.
	sync time.Duration
}

// maxSyncMicros bounds what is believed of a peer's disk.
const maxSyncMicros = uint64(time.Hour / time.Microsecond)

// maxRoomBytes bounds what is believed of a peer's room.
const maxRoomBytes = uint64(1 << 30)

// noteStatus stores the status that a ping has of its sender, unless a later ping was heard.
func (p *peers) noteStatus(host uint64, ping *peerpb.HostPing) {
	c := hostStatus{
		averse: ping.GetAverse(), recovering: ping.GetRecovering(), leaving: ping.GetLeaving(),
		noRoom:    ping.GetNoRoom(),
		roomBytes: int64(min(ping.GetRoomBytes(), maxRoomBytes)),
		share:     group.Share(min(ping.GetRoomShare(), group.Shares-1)),
		sync:      time.Duration(min(ping.GetSyncMicros(), maxSyncMicros)) * time.Microsecond,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil || x.statusIncarnation == ping.GetIncarnation() && ping.GetNumber() < x.statusNumber {
		return
	}
	x.statusIncarnation, x.statusNumber = ping.GetIncarnation(), ping.GetNumber()
	if x.status.noRoom != c.noRoom {
		if c.noRoom {
			p.withoutRoom.Add(1)
		} else {
			p.withoutRoom.Add(-1)
		}
	}
	x.status = c
}

// status is what is known of a peer.
func (p *peers) status(host uint64) (known, down bool, c hostStatus) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil {
		return false, false, hostStatus{}
	}
	return true, x.down, x.status
}

// willing says whether a host with a replica that can lead would do so, as far as it is a peer.
func (p *peers) willing(among *group.Configuration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range among.Members {
		if x := p.hosts[m.Host]; x != nil && among.Electable(m.Replica) && !x.down &&
			!x.status.averse {
			return true
		}
	}
	return false
}

// SetLeaderAverse tells the peers in pings that this host does not want to lead, and has each of
// its groups leave campaigns to other replicas, as long as one of them is on a host that is not
// averse, and not for ever (group.SetLeaderAverse). A host that is recovering is able to lead, and
// only waits whether that lasts.
func (h *Host) SetLeaderAverse(averse, recovering bool) {
	h.recovering.Store(averse && recovering)
	h.averse.Store(averse)
}

// PeerDown says whether a host that shares a group with this one has been silent for an election
// timeout.
func (h *Host) PeerDown(host uint64) bool {
	_, down, _ := h.peers.status(host)
	return down
}

// PeerLeaderAverse says whether a host does not want to lead: see SetLeaderAverse.
func (h *Host) PeerLeaderAverse(host uint64) bool {
	_, _, c := h.peers.status(host)
	return c.averse
}

// PeerRecovering says whether a host that does not want to lead is able to: see SetLeaderAverse.
func (h *Host) PeerRecovering(host uint64) bool {
	_, _, c := h.peers.status(host)
	return c.recovering && !c.leaving
}

// PeerWithoutRoom says whether a host's disk is below its reserve, as it says itself.
func (h *Host) PeerWithoutRoom(host uint64) bool {
	if h.peers.withoutRoom.Load() == 0 {
		return false
	}
	_, _, c := h.peers.status(host)
	return c.noRoom
}

// PeerTakes says whether a host has room for entries of a share, as it says itself.
func (h *Host) PeerTakes(host uint64, share group.Share) bool {
	if h.peers.withoutRoom.Load() == 0 {
		return true
	}
	_, _, c := h.peers.status(host)
	return !c.noRoom || c.share != group.NoShare && share >= c.share
}

// AnyPeerWithoutRoom says whether PeerWithoutRoom is true of any host.
func (h *Host) AnyPeerWithoutRoom() bool { return h.peers.withoutRoom.Load() > 0 }
