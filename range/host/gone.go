package host

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A process that ends takes its listener along: the machine refuses connections from then on. That
// is heard long before an election timeout is over. Where such a host led, followers need not wait
// for the end of that, nor for the random time behind it (group.Succeed): they campaign as soon as
// they owe the old leader nothing any more.
//
// A refusal proves nothing. The listener may be closed while the process lives, a firewall may
// refuse in its place, and the address may belong to another machine. So a host counts as gone only
// while nothing at all is heard of it, and what follows from that breaks no promise.

const (
	// goneTicks is for how many ticks a host that has refused a connection must have been silent.
	// One that lives says something every tick or two.
	goneTicks = 3
	// campaignsPerTick bounds the campaigns that groups begin in a tick ahead of their election timers
	// because hosts are gone. It does not bound those that the timers begin: a group that gets no turn
	// campaigns when its timer says so, as it would if nobody knew that the host is gone. So in no
	// tick do more groups campaign than without the hint, but for this number. Groups that slept are
	// woken in portions (wakesPerTick).
	campaignsPerTick = 128
)

// HandleRefused tells that the machine of a host has refused a connection: no process listens at
// its address.
func (h *Host) HandleRefused(host uint64) {
	h.peers.mu.Lock()
	defer h.peers.mu.Unlock()
	if x := h.peers.hosts[host]; x != nil {
		x.refused = true
	}
}

// newlyGone returns the hosts that count as gone since now.
func (p *peers) newlyGone(now int64, tick time.Duration) (gone []uint64) {
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

// backLocked notes that something was heard of a host, or that it is forgotten.
func (p *peers) backLocked(x *hostState) {
	x.refused = false
	if x.gone {
		x.gone = false
		p.gone.Add(-1)
	}
}

// isGone says whether the process of a host is gone, as far as this host can see.
func (p *peers) isGone(host uint64) bool {
	if p.gone.Load() == 0 {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	x := p.hosts[host]
	return x != nil && x.gone
}

// noteGone is told of hosts that newly count as gone. Groups that are awake look for themselves.
func (h *Host) noteGone(hosts []uint64) {
	h.campaigns.Store(campaignsPerTick)
	for _, host := range hosts {
		h.metrics.gone.Inc()
		h.config.Logger.Debug("the process of a host is gone", "host", host)
		h.wakeFollowersOf(host, false)
	}
}

// mayCampaign takes one of the campaigns of this tick that are ahead of election timers; false if
// there are none left.
func (h *Host) mayCampaign() bool { return h.campaigns.Add(-1) >= 0 }

// succeed is the part of a tick in which a follower does something about a leader that is gone.
func (g *Group) succeed() {
	if l := g.core.Leadership(); l.Leader != 0 && g.leaderGone(l.Leader) {
		g.core.LeaderGone()
	}
	g.core.Succeed(g.host.now(), g.host.mayCampaign)
}

// leaderGone says whether the process of another replica's host is gone.
func (g *Group) leaderGone(leader keys.ReplicaID) bool {
	return leader != g.self && g.host.peers.gone.Load() > 0 &&
		g.host.peers.isGone(g.HostOf(leader))
}
