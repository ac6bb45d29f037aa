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

// Drain hands over all that is led here, while the host goes on serving, and returns how many
// leaderships are left. It returns when there are none, when ctx ends, or when no host is left that
// could take one. From its beginning on this host says in its pings that it is leaving: it is given
// no leadership, and leaves elections to others. hand hands one over; it is called on a shard
// worker and must not wait.
//
// A leadership counts as handed over when the successor is known here: until then a request that
// comes here cannot be told where to go, and the successor may still need this host to bring its
// log up to date.
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

// draining is one Drain. Its fields are its goroutine's, but for mu.
type draining struct {
	host *Host
	hand func(g *Group, term uint64, to keys.ReplicaID)
	// groups are those that are not handed over yet, as far as is known.
	groups map[*Group]*handingOver
}

// handingOver is where the hand-over of one group stands.
type handingOver struct {
	// until is when another attempt is made, of Host.now; zero: none was made.
	until int64
	mu    sync.Mutex
	// failed: the last attempt found no host to hand over to. Guarded by mu.
	failed bool
}

// round looks at all groups once. It returns how many are not handed over, and for how many of
// those no host is there.
func (d *draining) round() (left, stuck int) {
	h, now := d.host, d.host.now()
	// What is led here since: it was on its way when the drain began.
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
			// A transfer that came to nothing ends by itself within an election timeout.
			o.until = now + int64(h.config.electionTimeout())
			d.begin(g, o)
		}
	}
	return left, stuck
}

// anyHost says whether a host of the group is there that stays.
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

// begin asks a group's leader to hand over: to a host that wants to lead, or to any that stays if
// none does.
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

// AnyLag is the lag of Successor for those to whom any follower is better than this leader.
const AnyLag = math.MaxUint64

// Successor looks for the replica that is best suited to lead a group that is led here: of those
// that are there and lack no more than lag of the entries that are applied here, on the hosts that
// rank highest, the one that has most. rank says how well a host is suited; 0 is not at all. A
// follower that lags leads nothing before it has the rest, and no replica does meanwhile. Successor
// calls report with the replica and with the term of the
// leadership, or with 0 if there is none (or the group is not led here any more), on the shard
// worker or on the caller's goroutine.
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
