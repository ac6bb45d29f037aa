package peers

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/host/delays"
)

// Peers are the hosts that share a group with this one. They must not be copied after Init.
type Peers struct {
	mu    sync.Mutex
	hosts map[uint64]*peer
	// withoutRoom counts the hosts whose disk is below its reserve, for readers without the lock.
	withoutRoom atomic.Int32
	// gone counts the hosts whose process is gone, for readers without the lock.
	gone atomic.Int32
}

// peer is what is known of one host. Times are monotonic, in nanoseconds.
type peer struct {
	// groups counts the groups that the host shares with this one.
	groups int
	// lastHeard is when something was last heard from the host, or when the host was added.
	lastHeard int64
	// pinged is when the host was last pinged with other messages; 0: not yet.
	pinged      int64
	incarnation uint64
	// down is set while the host has been silent for an election timeout.
	down bool
	// refused is set if the host's machine has refused a connection since something was last heard
	// from the host. gone is set if the host has also been silent for goneTicks (gone.go).
	refused, gone bool
	// returned is when the host was heard again after a silence, or as another process; 0: never.
	returned int64
	// status comes from the latest ping: number statusNumber of the process statusIncarnation.
	status                          Status
	statusNumber, statusIncarnation uint64
	// reported is when the groups were last told that messages to the host were lost.
	reported int64
	// trip measures the round trips to the host.
	trip delays.RoundTrip
}

// Init makes zero Peers ready.
func (p *Peers) Init() { p.hosts = make(map[uint64]*peer) }

// Add counts a group that a host shares with this one.
func (p *Peers) Add(host uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil {
		x = &peer{}
		p.hosts[host] = x
	}
	x.groups++
}

// Drop undoes one Add. A host that shares no group any more is forgotten.
func (p *Peers) Drop(host uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.hosts[host]; x != nil {
		if x.groups--; x.groups == 0 {
			if x.status.NoRoom {
				p.withoutRoom.Add(-1)
			}
			p.backLocked(x)
			delete(p.hosts, host)
		}
	}
}

// Heard notes that something was heard from a host. restarted reports that the host runs another
// process than before, back that it had been silent. An incarnation of 0 says nothing about the
// process.
func (p *Peers) Heard(host uint64, incarnation uint64, now int64) (restarted, back bool) {
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

// MayReport reports whether the groups may be told now that messages to a host were lost, at most
// once per interval, because telling all groups is expensive.
func (p *Peers) MayReport(host uint64, now, interval int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil || (x.reported != 0 && now-x.reported < interval) {
		return false
	}
	x.reported = now
	return true
}

// NewlySilent returns the hosts that have become silent for the timeout since the last call, and
// all hosts.
func (p *Peers) NewlySilent(now, timeout int64) (silent, all []uint64) {
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

// Count returns how many hosts share a group with this one, and how many of them have been silent
// for an election timeout.
func (p *Peers) Count() (all, silent int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.hosts {
		if x.down {
			silent++
		}
	}
	return len(p.hosts), silent
}

// All lists the peers.
func (p *Peers) All() []uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]uint64, 0, len(p.hosts))
	for id := range p.hosts {
		all = append(all, id)
	}
	return all
}

// Lately returns the hosts that are silent, or were silent within the time before now.
func (p *Peers) Lately(now, within int64) (hosts []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, x := range p.hosts {
		if x.down || x.returned != 0 && now-x.returned < within {
			hosts = append(hosts, id)
		}
	}
	return hosts
}

// Silent returns the hosts that have been silent for an election timeout, in ascending order.
func (p *Peers) Silent() (silent []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, x := range p.hosts {
		if x.down {
			silent = append(silent, id)
		}
	}
	slices.Sort(silent)
	return silent
}

// PingedLately reports whether the last ping with other messages to a host left less than least
// ago.
func (p *Peers) PingedLately(host uint64, now, least int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	return x != nil && x.pinged != 0 && now-x.pinged < least
}

// PingBeside returns true, and notes that a host is pinged now with other messages, unless the last
// such ping left less than least ago.
func (p *Peers) PingBeside(host uint64, now, least int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	if x == nil || x.pinged != 0 && now-x.pinged < least {
		return false
	}
	x.pinged = now
	return true
}
