package peers

import "time"

// When a process ends, its listener ends too, and the machine refuses connections. The refusal is
// noticed long before an election timeout is over, but proves nothing: the listener may be closed
// while the process lives, a firewall may refuse in its place, or the address may belong to another
// machine. So a host counts as gone only while nothing at all is heard from it, and what is done
// because of it breaks no promise.

// goneTicks is for how many ticks a host that has refused a connection must have been silent to
// count as gone. A live host sends something every tick or two.
const goneTicks = 3

// Refused notes that the machine of a host has refused a connection: no process listens at its
// address.
func (p *Peers) Refused(host uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.hosts[host]; x != nil {
		x.refused = true
	}
}

// NewlyGone returns the hosts that count as gone from now on.
func (p *Peers) NewlyGone(now int64, tick time.Duration) (gone []uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, x := range p.hosts {
		if x.refused && !x.gone && now-x.lastHeard >= goneTicks*int64(tick) {
			x.gone = true
			p.gone.Add(1)
			gone = append(gone, id)
		}
	}
	return gone
}

// backLocked notes that something was heard from a host, or that the host is forgotten.
func (p *Peers) backLocked(x *peer) {
	x.refused = false
	if x.gone {
		x.gone = false
		p.gone.Add(-1)
	}
}

// Gone says whether the process of a host is gone, as far as this host can see.
func (p *Peers) Gone(host uint64) bool {
	if p.gone.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	return x != nil && x.gone
}
