package kvtest

import (
	"sync"
	"time"
)

// Clock is a server's wall clock: the test's own, set off and running at a speed of its own. It goes on while the server is
// down. What a process measures with its monotonic clock (leases, timeouts) is not touched by it.
type Clock struct {
	mu struct {
		sync.Mutex
		// At real it showed shown; since then it has run at speed.
		real  time.Time
		shown int64
		speed float64
	}
}

func newClock() *Clock {
	c := &Clock{}
	now := time.Now()
	c.mu.real, c.mu.shown, c.mu.speed = now, now.UnixNano(), 1
	return c
}

// Now implements hlc.Physical.
func (c *Clock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nowLocked(time.Now())
}

func (c *Clock) nowLocked(now time.Time) int64 {
	return c.mu.shown + int64(float64(now.Sub(c.mu.real))*c.mu.speed)
}

// SetOffset makes the clock show the true time plus an offset.
func (c *Clock) SetOffset(d time.Duration) {
	c.change(func(now time.Time) { c.mu.shown = now.UnixNano() + int64(d) })
}

// Jump moves the clock, forward or back.
func (c *Clock) Jump(d time.Duration) {
	c.change(func(time.Time) { c.mu.shown += int64(d) })
}

// SetDrift makes the clock gain so many seconds in each true second from now on: 0.0001 is 100 parts in a million too fast.
func (c *Clock) SetDrift(gain float64) {
	c.change(func(time.Time) { c.mu.speed = 1 + gain })
}

// Offset is how far the clock is ahead of the true time.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return time.Duration(c.nowLocked(now) - now.UnixNano())
}

func (c *Clock) change(set func(now time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.mu.shown, c.mu.real = c.nowLocked(now), now
	set(now)
}
