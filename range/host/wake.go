package host

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// wakes are the groups that the ticker is to wake: thousands of elections at once would keep each
// other from ending.
//
// INVARIANT: a group is queued at most once for each of its hosts and each reason, however often
// that host seems to go and to come.
type wakes struct {
	groups *registry
	mu     sync.Mutex
	// queue is in the order in which they are woken; due says what is known of each of them.
	queue []wakeKey
	due   map[wakeKey]wakeState

	// campaigns is how many more may begin in this tick because hosts are gone.
	campaigns atomic.Int64
}

// wakeKey is a group, the host because of which it is to be woken, and what has become of the host.
type wakeKey struct {
	group  *Group
	host   uint64
	reason wakeReason
}

// wakeReason is why a sleeping group is woken.
type wakeReason uint8

const (
	// leaderLost: the host of its leader is silent, or has restarted.
	leaderLost wakeReason = iota
	// followerBack: it fell asleep while the host was away, which is back now.
	followerBack
	// quorumLost: it is led here, and the host is the latest of so many silent ones that no quorum
	// is left.
	quorumLost
)

// wakeState is of the latest event: which host led the group then, and whether the host is known to
// be another process than the one that did.
type wakeState struct {
	then      group.Leadership
	restarted bool
}

// wakesPerTick bounds how many groups are woken at a time.
const wakesPerTick = 500

// BusyGroups is how many awake groups are enough to do: what has time is not begun in more of them.
const BusyGroups = 2000

// waking is a group to be woken.
type waking struct {
	wakeKey
	wakeState
}

// add queues groups, and updates those that are queued.
func (w *wakes) add(found []waking) {
	slices.SortFunc(found, func(a, b waking) int { return cmp.Compare(a.group.ID(), b.group.ID()) })
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.due == nil {
		w.due = make(map[wakeKey]wakeState, len(found))
	}
	for _, x := range found {
		old, queued := w.due[x.wakeKey]
		if !queued {
			w.queue = append(w.queue, x.wakeKey)
		} else if old.then == x.then {
			x.restarted = x.restarted || old.restarted
		}
		w.due[x.wakeKey] = x.wakeState
	}
}

// some takes the next ones.
func (w *wakes) some() []waking {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := make([]waking, min(wakesPerTick, len(w.queue)))
	for i, k := range w.queue[:len(next)] {
		next[i] = waking{k, w.due[k]}
		delete(w.due, k)
	}
	if w.queue = w.queue[len(next):]; len(w.queue) == 0 {
		w.queue, w.due = nil, nil
	}
	return next
}

// followersOf has the groups woken that sleep under a leader on a host that is silent, or has
// restarted, or that know no leader; in the order of their ids, so that the hosts of a group wake
// it at about the same time.
func (w *wakes) followersOf(host uint64, restarted bool) {
	var found []waking
	w.groups.Groups(func(g *Group) {
		l := g.leadership.Load()
		if _, member := g.on(host); member && !l.IsLeader && (l.Leader == 0 ||
			g.HostOf(l.Leader) == host) {
			found = append(found, waking{wakeKey{group: g, host: host}, wakeState{*l, restarted}})
		}
	})
	w.add(found)
}

// leadersAlone has the groups woken that are led here, have a replica on a host that is silent
// now, and no quorum on hosts that are there. A leader that sleeps asks nobody for its office, so
// it would take itself for the leader, and say so, for as long as nobody wants anything of the
// group. One that is awake finds out within two election timeouts. Groups that are awake are queued
// all the same, as they may be falling asleep at this moment.
func (w *wakes) leadersAlone(host uint64) {
	var found []waking
	w.groups.Groups(func(g *Group) {
		if !g.leadership.Load().IsLeader {
			return
		}
		if _, member := g.on(host); member && !g.quorumIsThere() {
			found = append(found, waking{wakeKey: wakeKey{group: g, host: host, reason: quorumLost}})
		}
	})
	w.add(found)
}

// quorumIsThere says whether a quorum of the group's replicas are here or on hosts that are not
// silent.
func (g *Group) quorumIsThere() bool {
	return g.Configuration().Quorum(func(id keys.ReplicaID) bool {
		return id == g.Self() || !g.isAway(id)
	})
}

// leadersWithout has the groups woken that are led here and fell asleep while a host was away
// that is back now.
func (w *wakes) leadersWithout(host uint64) {
	var found []waking
	w.groups.Groups(func(g *Group) {
		if _, member := g.on(host); member && g.leadership.Load().IsLeader {
			found = append(found, waking{wakeKey: wakeKey{group: g, host: host, reason: followerBack}})
		}
	})
	w.add(found)
}

// wake wakes the next groups in the queue.
func (w *wakes) wake() {
	for _, w := range w.some() {
		switch w.reason {
		case leaderLost:
			w.group.do(func(g *Group) { g.wakeLeaderGone(w.host, w.wakeState) })
		case followerBack:
			w.group.do(func(g *Group) {
				if id, _ := g.on(w.host); g.core.SleepsWithout(id) {
					g.core.Wake()
				}
			})
		case quorumLost:
			w.group.do(func(g *Group) {
				if g.core.Asleep() && !g.quorumIsThere() {
					g.core.Wake()
				}
			})
		}
	}
}

// wakeLeaderGone is the turn of a follower, which may come late: by then the host may be back, and
// lead as before, or the group be led anew.
func (g *Group) wakeLeaderGone(host uint64, s wakeState) {
	l := g.core.Leadership()
	ledAnew := l.Leader != 0 && (g.HostOf(l.Leader) != host || l.Term != s.then.Term)
	switch {
	case ledAnew:
	case s.restarted:
		g.core.WakeLeaderGone(g.host.config.ElectionTicks)
		g.core.LeaderGone()
	case g.host.peers.Down(host), g.host.peers.Gone(host):
		g.core.WakeLeaderGone(g.host.config.ElectionTicks)
	}
}

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
