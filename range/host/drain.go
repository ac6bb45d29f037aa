package host

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// drainPeriod is how often Drain looks at what is still led here.
	drainPeriod = 5 * time.Millisecond
	// drainAtATime bounds the hand-overs under way: each costs an election.
	drainAtATime = 256
)

// Drain hands over all leaderships on this host, while the host goes on serving, and returns how
// many are left. It returns when none is left, when ctx ends, or when no other host could take one.
// From the beginning of the drain, pings say that this host is leaving: it is given no leadership,
// and leaves elections to others. hand hands over one group's leadership; it is called on a shard
// worker and must not block.
//
// A leadership counts as handed over when this host knows the successor. Until then a request that
// comes here cannot be redirected, and the successor may still need this host to bring its log up
// to date.
func (h *Host) Drain(ctx context.Context,
	hand func(g *Group, term uint64, to keys.ReplicaID)) (left int) {
	h.leaving.Store(true)
	h.PingNow()
	d := draining{host: h, hand: hand, groups: make(map[*Group]*handingOver)}
	h.Groups(func(g *Group) {
		if g.leadership.Load().IsLeader {
			d.groups[g] = &handingOver{}
		}
	})
	timer := time.NewTimer(drainPeriod)
	defer timer.Stop()
	for {
		left, stuck := d.round()
		if left == stuck {
			return left
		}
		timer.Reset(drainPeriod)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return left
		}
	}
}

// draining is one run of Drain. Only its goroutine may touch the fields outside mu.
type draining struct {
	host *Host
	hand func(g *Group, term uint64, to keys.ReplicaID)
	// groups are the groups whose leadership is not known to be handed over yet.
	groups map[*Group]*handingOver
}

// handingOver is the state of one group's hand-over.
type handingOver struct {
	// until is when the next attempt may begin, on the clock of Host.now; zero: no attempt was made
	// yet.
	until int64
	mu    sync.Mutex
	// failed is set if the last attempt found no host to hand over to. Guarded by mu.
	failed bool
}

// round looks at all groups once. It returns how many are not handed over, and how many of those
// have no host that could take over.
func (d *draining) round() (left, stuck int) {
	h, now := d.host, d.host.now()
	// Add groups that came to be led here since the last round: their elections were under way when
	// the drain began.
	h.Groups(func(g *Group) {
		if d.groups[g] == nil && g.leadership.Load().IsLeader {
			d.groups[g] = &handingOver{}
		}
	})
	room := drainAtATime
	for g, o := range d.groups {
		l := g.leadership.Load()
		// It was removed, has failed, or is led elsewhere.
		if g.inbox.isStopped() || (!l.IsLeader && l.Leader != 0) {
			delete(d.groups, g)
			continue
		}
		left++
		if !d.anyHost(g) {
			stuck++
			continue
		}
		o.mu.Lock()
		if o.failed {
			o.failed, o.until = false, now+int64(h.config.Tick)/4
		}
		o.mu.Unlock()
		switch {
		case room == 0:
		case now < o.until:
			room--
		case l.IsLeader:
			room--
			// A transfer that fails ends by itself within an election timeout.
			o.until = now + int64(h.config.electionTimeout())
			d.begin(g, o)
		}
	}
	return left, stuck
}

// anyHost reports whether another host of the group is reachable and not leaving.
func (d *draining) anyHost(g *Group) bool {
	for id, at := range g.hosts() {
		if id == g.Self() || !g.Configuration().Electable(id) {
			continue
		}
		if known, down, c := d.host.peers.Status(at); known && !down && !c.Leaving {
			return true
		}
	}
	return false
}

// begin asks a group's leader to hand over, to a host that wants to lead if there is one, and
// otherwise to any host that is not leaving.
func (d *draining) begin(g *Group, o *handingOver) {
	if !g.Awake() {
		g.Wake() // its followers' progress is as old as its sleep
	}
	rank := func(at uint64) int {
		switch _, _, c := d.host.peers.Status(at); {
		case c.Leaving:
			return 0
		case !c.Averse:
			return 3
		case c.Recovering:
			return 2
		}
		return 1
	}
	g.Successor(rank, AnyLag, func(to keys.ReplicaID, term uint64) {
		if to != 0 {
			d.hand(g, term, to)
			return
		}
		o.mu.Lock()
		o.failed = true
		o.mu.Unlock()
	})
}

// AnyLag is the lag to give to Successor if any follower would lead better than this leader.
const AnyLag = math.MaxUint64

// Successor picks the replica that is best suited to take over a group that is led here. Candidates
// are replicas on reachable hosts that lack at most lag of the entries applied here. Among them the
// host with the highest rank wins, and then the replica with the longest log. rank says how well a
// host is suited; 0 excludes it. A follower that lags can lead only when it has the missing
// entries, and until then the group has no leader. Successor calls report with the replica and the
// term of the leadership, or with 0 if there is no candidate or the group is not led here any more.
// report runs on the shard worker or on the caller's goroutine.
func (g *Group) Successor(rank func(host uint64) int, lag uint64,
	report func(best keys.ReplicaID, term uint64)) {
	found := func(g *Group) {
		l := g.core.Leadership()
		var best keys.ReplicaID
		var highest int
		var most uint64
		if l.IsLeader {
			applied := g.core.Applied()
			g.core.Followers(func(id keys.ReplicaID, p group.Progress) {
				at := g.HostOf(id)
				if !g.Configuration().Electable(id) || !p.Active || p.Snapshot ||
					g.host.peers.Down(at) || p.Match < applied && applied-p.Match > lag {
					return
				}
				r := rank(at)
				if r > highest || r == highest && r > 0 && p.Match > most {
					best, highest, most = id, r, p.Match
				}
			})
		}
		report(best, l.Term)
	}
	if !g.do(found) {
		report(0, 0)
	}
}
