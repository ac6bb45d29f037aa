package host

import (
	"cmp"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// wakes queues the groups that the ticker is to wake. Thousands of elections at once would keep
// each other from ending.
//
// INVARIANT: a group is queued at most once for each of its hosts and each reason, however often
// that host goes and returns.
type wakes struct {
	groups *registry
	mu     sync.Mutex
	// queue is in the order in which groups are woken; due holds the latest state of each.
	queue []wakeKey
	due   map[wakeKey]wakeState

	// campaigns is how many more groups may campaign in this tick because their leader's host is
	// gone.
	campaigns atomic.Int64
}

// wakeKey names a group, the host that is the cause of waking it, and the reason.
type wakeKey struct {
	group  *Group
	host   uint64
	reason wakeReason
}

// wakeReason is why a sleeping group is woken.
type wakeReason uint8

const (
	// leaderLost: the leader's host is silent or has restarted.
	leaderLost wakeReason = iota
	// followerBack: the group fell asleep while the host was away, and the host is back.
	followerBack
	// quorumLost: the group is led here, and with this host silent it has no quorum.
	quorumLost
)

// wakeState describes the latest event: the leadership at that time, and whether the host is known
// to have restarted since.
type wakeState struct {
	then      group.Leadership
	restarted bool
}

// wakesPerTick bounds how many groups are woken at a time.
const wakesPerTick = 500

// BusyGroups is the number of awake groups above which work that can wait is not begun in more
// groups.
const BusyGroups = 2000

// waking is a queued group and its state.
type waking struct {
	wakeKey
	wakeState
}

// add queues groups, and updates the state of those already queued.
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

// some takes the next groups off the queue.
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

// followersOf queues the groups that sleep and know no leader, or whose leader is on a host that is
// silent or has restarted. They are queued in the order of their ids, so that the hosts of a group
// wake it at about the same time.
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

// leadersAlone queues the groups that are led here, have a replica on a host that has just become
// silent, and have no quorum on reachable hosts. A sleeping leader sends no heartbeats, so it would
// believe, and say, that it leads until a request or a message uses the group. An awake leader
// finds out within two election timeouts. Awake groups are queued too, because they may be about to
// fall asleep.
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

// leadersWithout queues the groups that are led here and fell asleep while a host was away that is
// back now.
func (w *wakes) leadersWithout(host uint64) {
	var found []waking
	w.groups.Groups(func(g *Group) {
		if _, member := g.on(host); member && g.leadership.Load().IsLeader {
			found = append(found, waking{wakeKey: wakeKey{group: g, host: host, reason: followerBack}})
		}
	})
	w.add(found)
}

// wake wakes the next groups of the queue.
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

// wakeLeaderGone wakes a follower. Its turn may come late: the host may be back by then and lead as
// before, or the group may have a new leader.
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

// The end of a host's process is known long before an election timeout is over (package peers).
// Followers of such a host need wait neither for the end of the timeout nor for the random time
// after it (group.Succeed): they campaign as soon as they owe the old leader no promise. A host may
// be taken for gone wrongly, so a campaign for this reason breaks no promise.

// campaignsPerTick bounds the campaigns that groups begin in a tick, ahead of their election
// timers, because hosts are gone. Campaigns by timer are not bounded: a group that gets no turn
// campaigns when its timer says so, as it would without knowing that the host is gone. So a tick
// never has more than this number of campaigns in addition to those by timer. Sleeping groups are
// woken in portions (wakesPerTick).
const campaignsPerTick = 128

// HandleRefused reports that the machine of a host has refused a connection: no process listens at
// its address.
func (h *Host) HandleRefused(host uint64) { h.peers.Refused(host) }

// noteGone wakes sleeping groups that are led from hosts that have just been found gone. Awake
// groups check for themselves.
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

// succeed is the step of a tick in which a follower may campaign because its leader's process is
// gone.
func (g *Group) succeed() {
	if l := g.core.Leadership(); l.Leader != 0 && g.leaderGone(l.Leader) {
		g.core.LeaderGone()
	}
	g.core.Succeed(g.host.now(), g.host.wakes.mayCampaign)
}

// leaderGone reports whether the process of the leader's host is gone.
func (g *Group) leaderGone(leader keys.ReplicaID) bool {
	return leader != g.Self() && g.host.peers.Gone(g.HostOf(leader))
}
