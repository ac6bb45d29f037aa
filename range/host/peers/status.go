package peers

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Status is what a host says of itself in its pings, besides the time.
type Status struct {
	// Averse: the host does not want to lead. Recovering: it would lead all the same if no better
	// host can. Leaving: it is about to shut down. NoRoom: its disk is below its reserve, and it
	// stores no entries that add data.
	Averse, Recovering, Leaving, NoRoom bool
	// Share is the smallest share whose entries a host without room still stores; NoShare: none.
	Share group.Share
	// RoomBytes is how many bytes of entries that add data a host without room can still store.
	RoomBytes int64
	// Sync is how long the host's log takes to sync a write; 0: unknown.
	Sync time.Duration
}

// maxSyncMicros bounds the sync time that a peer may claim.
const maxSyncMicros = uint64(time.Hour / time.Microsecond)

// maxRoomBytes bounds the free space that a peer may claim.
const maxRoomBytes = uint64(1 << 30)

// NoteStatus stores the status that a ping carries, unless a later ping was heard.
func (p *Peers) NoteStatus(host uint64, ping *peerpb.HostPing) {
	c := Status{
		Averse: ping.GetAverse(), Recovering: ping.GetRecovering(), Leaving: ping.GetLeaving(),
		NoRoom:    ping.GetNoRoom(),
		RoomBytes: int64(min(ping.GetRoomBytes(), maxRoomBytes)),
		Share:     group.Share(min(ping.GetRoomShare(), group.Shares-1)),
		Sync:      time.Duration(min(ping.GetSyncMicros(), maxSyncMicros)) * time.Microsecond,
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil || x.statusIncarnation == ping.GetIncarnation() && ping.GetNumber() < x.statusNumber {
		return
	}
	x.statusIncarnation, x.statusNumber = ping.GetIncarnation(), ping.GetNumber()
	if x.status.NoRoom != c.NoRoom {
		if c.NoRoom {
			p.withoutRoom.Add(1)
		} else {
			p.withoutRoom.Add(-1)
		}
	}
	x.status = c
}

// Status returns what is known of a peer.
func (p *Peers) Status(host uint64) (known, down bool, c Status) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil {
		return false, false, Status{}
	}
	return true, x.down, x.status
}

// Willing reports whether a replica that can lead is on a peer that is neither silent nor averse.
func (p *Peers) Willing(among *group.Configuration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range among.Members {
		if x := p.hosts[m.Host]; x != nil && among.Electable(m.Replica) && !x.down &&
			!x.status.Averse {
			return true
		}
	}
	return false
}

// Syncs lists how long syncs take at the peers that are reachable; 0: the peer does not know, or
// its version does not say.
func (p *Peers) Syncs() (all []time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.hosts {
		if !x.down {
			all = append(all, x.status.Sync)
		}
	}
	return all
}

// Down says whether a host that shares a group with this one has been silent for an election
// timeout.
func (p *Peers) Down(host uint64) bool {
	_, down, _ := p.Status(host)
	return down
}

// LeaderAverse says whether a host does not want to lead: see Host.SetLeaderAverse.
func (p *Peers) LeaderAverse(host uint64) bool {
	_, _, c := p.Status(host)
	return c.Averse
}

// Recovering says whether a host that does not want to lead is able to: see Host.SetLeaderAverse.
func (p *Peers) Recovering(host uint64) bool {
	_, _, c := p.Status(host)
	return c.Recovering && !c.Leaving
}

// WithoutRoom reports whether a host has said that its disk is below its reserve.
func (p *Peers) WithoutRoom(host uint64) bool {
	if p.withoutRoom.Load() == 0 {
		return false
	}
	_, _, c := p.Status(host)
	return c.NoRoom
}

// Takes reports whether a host, as it says, stores entries of a share.
func (p *Peers) Takes(host uint64, share group.Share) bool {
	if p.withoutRoom.Load() == 0 {
		return true
	}
	_, _, c := p.Status(host)
	return !c.NoRoom || c.Share != group.NoShare && share >= c.Share
}

// AnyWithoutRoom reports whether WithoutRoom is true for any host.
func (p *Peers) AnyWithoutRoom() bool { return p.withoutRoom.Load() > 0 }
