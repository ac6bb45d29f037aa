package host

import "github.com/tidemarkdb/tidemark/range/keys"

// The process of a host that is gone is known long before an election timeout is over (package
// peers). Where such a host led, followers need not wait for the end of the timeout, nor for the
// random time behind it (group.Succeed): they campaign as soon as they owe the old leader nothing
// any more. A host may be taken for gone wrongly, so what follows from that breaks no promise.

// campaignsPerTick bounds the campaigns that groups begin in a tick ahead of their election timers
// because hosts are gone. It does not bound those that the timers begin: a group that gets no turn
// campaigns when its timer says so, as it would if nobody knew that the host is gone. So in no tick
// do more groups campaign than without the hint, but for this number. Groups that slept are woken
// in portions (wakesPerTick).
const campaignsPerTick = 128

// HandleRefused tells that the machine of a host has refused a connection: no process listens at
// its address.
func (h *Host) HandleRefused(host uint64) { h.peers.Refused(host) }

// noteGone is told of hosts that newly count as gone. Groups that are awake look for themselves.
func (h *Host) noteGone(hosts []uint64) {
	h.wakes.campaigns.Store(campaignsPerTick)
	for _, host := range hosts {
		h.metrics.gone.Inc()
		h.config.Logger.Debug("the process of a host is gone", "host", host)
		h.wakes.followersOf(host, false)
	}
}

// mayCampaign takes one of the campaigns of this tick that are ahead of election timers; false if
// there are none left.
func (w *wakes) mayCampaign() bool { return w.campaigns.Add(-1) >= 0 }

// succeed is the part of a tick in which a follower does something about a leader that is gone.
func (g *Group) succeed() {
	if l := g.core.Leadership(); l.Leader != 0 && g.leaderGone(l.Leader) {
		g.core.LeaderGone()
	}
	g.core.Succeed(g.host.now(), g.host.wakes.mayCampaign)
}

// leaderGone says whether the process of another replica's host is gone.
func (g *Group) leaderGone(leader keys.ReplicaID) bool {
	return leader != g.Self() && g.host.peers.Gone(g.HostOf(leader))
}
