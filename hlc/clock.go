package hlc

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// ErrTooFarAhead is returned by Update for a timestamp further ahead of the physical clock than any
// of the cluster can be.
var ErrTooFarAhead = errors.New("timestamp too far ahead of this clock")

// Clock gives out hybrid timestamps. It is safe for concurrent use; a call holds the lock for a few
// instructions.
type Clock struct {
	physical Physical
	bound    BoundSource
	offset   time.Duration
	// ahead is MaxAhead.
	ahead time.Duration

	mu struct {
		sync.Mutex
		// last is the highest timestamp that Now gave or Update accepted.
		last Timestamp
	}
}

// NewClock returns a clock over a physical clock and a bound on its error. A nil physical is
// System; a nil bound is FixedBound(DefaultMaxOffset).
func NewClock(physical Physical, bound BoundSource) *Clock {
	if physical == nil {
		physical = System()
	}
	if bound == nil {
		bound = FixedBound(DefaultMaxOffset)
	}
	c := &Clock{physical: physical, bound: bound, offset: DefaultMaxOffset}
	if l, ok := bound.(offsetLimiter); ok {
		c.offset = l.maxOffset()
	}
	c.ahead = c.offset
	if !c.pairwise() {
		c.ahead = 2 * c.offset
	}
	return c
}

// Now returns a timestamp above all that this clock has given or accepted before: the physical time
// if that is higher, otherwise the next logical one.
func (c *Clock) Now() Timestamp {
	// INVARIANT: read before the lock is taken. A reading that became stale while waiting is merely
	// not higher than last.
	return c.after(c.physical.Now())
}

// after is Now for a reading of the physical clock.
func (c *Clock) after(wall int64) Timestamp {
	c.mu.Lock()
	defer c.mu.Unlock()
	before := c.mu.last
	if wall > before.Wall {
		c.mu.last = Timestamp{Wall: wall}
	} else {
		c.mu.last = before.Next()
	}
	if invariants.Enabled {
		invariants.Check(before.Less(c.mu.last), "a clock gives %s after %s", c.mu.last, before)
	}
	return c.mu.last
}

// Reading is Now for a timestamp on which others rely: the choice of a timestamp, or the time in an
// answer. trusted is false if the machine may have been suspended since the last look, or if its
// clock has jumped (Steady.Reading): the timestamp may be too low by as much, and others must not
// see it.
func (c *Clock) Reading() (now Timestamp, trusted bool) {
	s := c.Steady()
	if s == nil {
		return c.Now(), true
	}
	wall, trusted := s.Reading()
	return c.after(wall), trusted
}

// Update merges a timestamp that came from elsewhere: afterwards Now is above it. A timestamp that
// is more than twice MaxAhead ahead of the physical clock is refused with ErrTooFarAhead and leaves
// the clock unchanged. If this clock has already been that far (its physical clock jumped back
// since), there is nothing to merge. Twice, because a leader's first timestamps are one MaxAhead
// ahead of its own physical clock, which may be one MaxOffset ahead of this one. A timestamp that a
// request merely names waits first (see Delay).
func (c *Clock) Update(t Timestamp) error {
	wall := c.physical.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.LessEq(c.mu.last) {
		return nil
	}
	// As a difference: wall + offset might overflow, t.Wall and wall are both not negative.
	if ahead, allowed := t.Wall-wall, 2*c.ahead; ahead > int64(allowed) {
		return fmt.Errorf(
			"%w: %s is %s ahead, allowed are %s; check the time synchronisation of this server "+
				"and of the sender",
			ErrTooFarAhead,
			t,
			time.Duration(ahead),
			allowed,
		)
	}
	if invariants.Enabled {
		invariants.Check(c.mu.last.Less(t) && t.Wall-wall <= 2*int64(c.ahead),
			"a clock at %s takes over %s, while the physical clock shows %d and MaxAhead is %s",
			c.mu.last, t, wall, c.ahead)
	}
	c.mu.last = t
	return nil
}

// Delay returns how long a timestamp that a request names has to wait before it may be merged:
// until it is at most MaxAhead ahead of the physical clock. It is 0 if that is so already, if this
// clock is above it anyway, and if Update refuses it. Timestamps in the state do not wait; see the
// package's invariants.
func (c *Clock) Delay(t Timestamp) time.Duration {
	// As a difference: wall + offset might overflow, t.Wall and wall are both not negative.
	ahead := t.Wall - c.physical.Now()
	if ahead <= int64(c.ahead) || ahead > 2*int64(c.ahead) {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.LessEq(c.mu.last) {
		return 0
	}
	return time.Duration(ahead) - c.ahead
}

// Rewind sets the clock back to the physical one, as a restart of the process does; it does nothing
// if the clock is not ahead of that. It is for a server whose physical clock was wrong and is right
// again. The caller makes sure that nothing here relies on the timestamps that are forgotten: it
// serves no request and leads nothing.
func (c *Clock) Rewind() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if wall := c.physical.Now(); c.mu.last.Wall > wall {
		c.mu.last = Timestamp{Wall: wall}
	}
}

// Physical is the physical clock's reading in nanoseconds since the epoch. It may go back.
func (c *Clock) Physical() int64 { return c.physical.Now() }

// Reached returns Physical, or a later time that it may turn out to have been: see Steady.Reached.
// It is for a caller that has to get above what other clocks show.
func (c *Clock) Reached() int64 {
	if s := c.Steady(); s != nil {
		return s.Reached()
	}
	return c.physical.Now()
}

// Steady returns the physical clock if it is a Steady, otherwise nil.
func (c *Clock) Steady() *Steady {
	s, _ := c.physical.(*Steady)
	return s
}

// Machine returns the reading of the machine's clock: Physical, unless that is a Steady, which
// leaves jumps out. Then moved is how far the clock has moved since the last look (Steady.Machine).
func (c *Clock) Machine() (wall int64, moved time.Duration) {
	if s := c.Steady(); s != nil {
		return s.Machine()
	}
	return c.physical.Now(), 0
}

// PhysicalReading is Physical, and whether others may go by it (Reading).
func (c *Clock) PhysicalReading() (wall int64, trusted bool) {
	if s := c.Steady(); s != nil {
		return s.Reading()
	}
	return c.physical.Now(), true
}

// Bounds returns an interval [earliest, latest] in nanoseconds since the epoch that contains true
// time. It follows the physical clock, so it may move back; a caller that waits for earliest to
// pass a timestamp asks again. If that clock is a Steady, the interval includes how far the clock
// underneath has moved since the last look.
func (c *Clock) Bounds() (earliest, latest int64) {
	// before the clock is read: a step that comes in between makes the error smaller
	width := c.MaxError()
	if s := c.Steady(); s != nil {
		earliest, latest = s.Span()
		return earliest - int64(width), latest + int64(width)
	}
	now := c.physical.Now()
	if invariants.Enabled {
		invariants.Check(width >= 0 && width <= c.offset,
			"the clock may be off by %s, and MaxOffset is %s", width, c.offset)
	}
	return now - int64(width), now + int64(width)
}

// MaxError returns how far the physical clock may be from true time, now: the bound source's
// estimate if it has one that is not above MaxOffset, otherwise MaxOffset.
func (c *Clock) MaxError() time.Duration {
	if ns, ok := c.bound.MaxError(); ok {
		return min(time.Duration(ns), c.offset)
	}
	return c.offset
}

// MaxOffset is the configured maximum offset between the clocks of a cluster. It does not change.
func (c *Clock) MaxOffset() time.Duration { return c.offset }

// pairwise reports that the bound is on the difference of any two clocks.
func (c *Clock) pairwise() bool {
	_, fixed := c.bound.(fixedBound)
	return fixed
}

// WaitFloor returns a timestamp below which the timestamp of a commit with commit wait (until the
// earliest of Bounds is above it) must not be, if such commits are to be ordered as in real time;
// zero if the wait by itself is enough, as with a FixedBound. It is asked when the commit has been
// requested, on any server that takes part in choosing the timestamp.
//
// With a bound on the distance to true time, only true time is sure to have passed the timestamp
// when the wait is over, and not every clock: another clock may be further behind. The next commit
// that waits gets a timestamp of at least the latest that true time can be, by whichever clock, and
// so is above. (To wait until all clocks have passed the timestamp would take MaxOffset longer,
// however exact they are.)
func (c *Clock) WaitFloor() Timestamp {
	if c.pairwise() {
		return Timestamp{}
	}
	_, latest := c.Bounds()
	return Timestamp{Wall: latest}
}

// MaxAhead returns how far the timestamps that other servers give can be ahead of this physical
// clock: MaxOffset, because their clocks can be ahead by that, and with a bound that has a
// WaitFloor another MaxOffset, because that is ahead of their clocks by up to that. Only a new
// leader's first timestamps can be further ahead: it starts one MaxAhead above its physical clock.
// MaxAhead does not change.
func (c *Clock) MaxAhead() time.Duration { return c.ahead }
