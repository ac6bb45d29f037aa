package server

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// What time it is decides whether a consumer is dropped, and that cannot be taken back: what was
// kept for it is collected. So no single clock decides it, that of the leader least of all, which
// the leader has nothing to compare with. Two things have to be shown:
//
//   - that the time has come. Nodes compare their clocks with each other's (range/clockhealth), and
//     their heartbeats bring what those show that are trusted. What a majority of the nodes that
//     are alive shows, at least, is proven; from the moment of a heartbeat on, it goes on with the
//     leader's monotonic clock. Without a majority nothing is.
//   - that the consumer has stayed behind. The leader has seen it beyond its keep, by the proven
//     time, in all looks of a while (dropAfter), which it measures like leases are counted down: on
//     its monotonic clock, anew under each leader and after each pause of its process. So a cluster
//     that was away for longer than a keep, or whose clocks were all wrong for a moment, leaves the
//     consumers time to go on.

const (
	// dropAfter is for how long a consumer is seen beyond its keep until it is dropped: as long as
	// its keep, and no longer than this.
	dropAfter = 10 * time.Minute
	// lookGap is how far two looks are apart at most for a consumer to count as behind in between:
	// two that take long.
	lookGap = 2 * (protectInterval + protectTimeout)
)

// times is what time it is, as far as the leader can tell.
type times struct {
	// proven has come; zero: nothing is proven.
	proven time.Time
	// wall is what the clock of this member shows, right or wrong.
	wall time.Time
}

// likely is what time it is, best of all that is known.
func (t times) likely() time.Time {
	if t.proven.IsZero() {
		return t.wall
	}
	return t.proven
}

// latest is the higher of the two: what is done by that is done too early rather than too late.
func (t times) latest() time.Time {
	if t.wall.Before(t.proven) {
		return t.proven
	}
	return t.wall
}

// provenTime is by how much the time is ahead of the monotonic clock, at least, as was found during
// the leadership of a term.
type provenTime struct {
	term  uint64
	ahead int64
}

// proveTime looks what is proven from now on.
func (s *Server) proveTime(v *store.View) error {
	l, _ := s.store.Leadership()
	alive, err := loadAlive(v)
	if err != nil {
		return err
	}
	var proven *provenTime
	if ahead, ok := s.soft.clocks(l.Term, alive); ok {
		proven = &provenTime{l.Term, ahead}
	}
	s.consumers.proven.Store(proven)
	return nil
}

// times reads the clocks.
func (s *Server) times() times {
	t := times{wall: time.Unix(0, s.config.Physical.Now())}
	if l, _ := s.store.Leadership(); l.IsLeader {
		if p := s.consumers.proven.Load(); p != nil && p.term == l.Term {
			t.proven = time.Unix(0, s.config.Monotonic()+p.ahead)
		}
	}
	return t
}

// aheadOf is how far a node's clock, as a heartbeat brings it, is ahead of the monotonic clock;
// nil: the node does not trust it.
func aheadOf(clock uint64, now int64) *int64 {
	if clock == 0 || clock > 1<<63-1 {
		return nil
	}
	ahead := int64(clock) - now
	return &ahead
}

// clocks is by how much the clocks of a majority of the nodes that are alive are ahead of the
// monotonic clock, at least; false: no majority has told during that term.
func (s *soft) clocks(term uint64, alive map[uint64]bool) (ahead int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.term != term {
		return 0, false
	}
	var told []int64
	for id := range alive {
		if n := s.mu.nodes[keys.NodeID(id)]; n != nil && n.ahead != nil {
			told = append(told, *n.ahead)
		}
	}
	majority := len(alive)/2 + 1
	if len(told) < majority {
		return 0, false
	}
	slices.Sort(told)
	return told[len(told)-majority], true
}

// overdue remembers since when consumers are beyond their keep, by the monotonic clock. It belongs
// to the goroutine that looks at them.
type overdue struct {
	term   uint64
	looked int64
	// first is when each was seen so first, in looks without a gap.
	first map[string]int64
}

// overdueLook is one look at all consumers.
type overdueLook struct {
	of   *overdue
	now  int64
	next map[string]int64
}

// look begins one, during the leadership of a term.
func (o *overdue) look(term uint64, now int64) overdueLook {
	if o.term != term || now-o.looked > int64(lookGap) {
		o.first = nil
	}
	o.term = term
	return overdueLook{of: o, now: now, next: map[string]int64{}}
}

// since is for how long a consumer has been beyond its keep; it is now.
func (l overdueLook) since(key []byte) time.Duration {
	first, seen := l.of.first[string(key)]
	if !seen {
		first = l.now
	}
	l.next[string(key)] = first
	return time.Duration(l.now - first)
}

// done ends it: a consumer that was not seen beyond its keep counts anew.
func (l overdueLook) done() { l.of.looked, l.of.first = l.now, l.next }
