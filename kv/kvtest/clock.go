package kvtest

import (
	"sync"
	"time"
)

// Clock is the time as one server sees it: a wall clock, the test's own, set off and running at a
// speed of its own, and a monotonic clock. It goes on while the server is down. Leases and ticks
// are measured with the monotonic clock, which Pause stops and SetSpeed changes; timers, and what
// gRPC does, run in true time.
type Clock struct {
	mu struct {
		sync.Mutex
		wall, mono hand
		// limit bounds the wall clock's offset, if it is not 0.
		limit time.Duration
		// paused is when both stopped; zero if they go.
		paused time.Time
	}
}

// hand is what one clock shows: at real it showed shown, and since then it has run at speed.
type hand struct {
	real  time.Time
	shown int64
	speed float64
}

func (h *hand) at(now time.Time) int64 { return h.shown + int64(float64(now.Sub(h.real))*h.speed) }

// turn changes the hand from now on.
func (h *hand) turn(now time.Time, change func(*hand)) {
	h.shown, h.real = h.at(now), now
	change(h)
}

func newClock() *Clock {
	c := &Clock{}
	now := time.Now()
	c.mu.wall = hand{real: now, shown: now.UnixNano(), speed: 1}
	c.mu.mono = hand{real: now, speed: 1}
	return c
}

// Now implements hlc.Physical.
func (c *Clock) Now() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wallLocked(c.timeLocked())
}

// Monotonic is an hlc.Monotonic.
func (c *Clock) Monotonic() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.mono.at(c.timeLocked())
}

// timeLocked is the true time, or when the clock was paused.
func (c *Clock) timeLocked() time.Time {
	if !c.mu.paused.IsZero() {
		return c.mu.paused
	}
	return time.Now()
}

func (c *Clock) wallLocked(now time.Time) int64 {
	shown := c.mu.wall.at(now)
	if limit := int64(c.mu.limit); limit > 0 {
		truth := now.UnixNano()
		shown = max(truth-limit, min(truth+limit, shown))
	}
	return shown
}

// SetOffset makes the wall clock show the true time plus an offset.
func (c *Clock) SetOffset(d time.Duration) {
	c.turn(func(now time.Time, wall *hand) { wall.shown = now.UnixNano() + int64(d) })
}

// Jump moves the wall clock, forward or back.
func (c *Clock) Jump(d time.Duration) {
	c.turn(func(_ time.Time, wall *hand) { wall.shown += int64(d) })
}

// SetDrift makes the wall clock gain so many seconds in each true second from now on: 0.0001 is 100
// parts in a million too fast.
func (c *Clock) SetDrift(gain float64) {
	c.turn(func(_ time.Time, wall *hand) { wall.speed = 1 + gain })
}

// SetLimit keeps the wall clock within an offset from the true time, whatever it was set to; 0 ends
// that.
func (c *Clock) SetLimit(d time.Duration) {
	c.turn(func(time.Time, *hand) { c.mu.limit = d })
}

// SetSpeed makes the monotonic clock run at another speed from now on; 1 is the true one.
func (c *Clock) SetSpeed(speed float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.mono.turn(time.Now(), func(h *hand) { h.speed = speed })
}

// Offset is how far the wall clock is ahead of the true time.
func (c *Clock) Offset() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	return time.Duration(c.wallLocked(now) - now.UnixNano())
}

// pause stops both clocks, or lets them show again what they would had they never stopped.
func (c *Clock) pause(stop bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.paused = (time.Time{}); stop {
		c.mu.paused = time.Now()
	}
}

func (c *Clock) turn(change func(now time.Time, wall *hand)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.mu.wall.shown, c.mu.wall.real = c.wallLocked(now), now
	change(now, &c.mu.wall)
}
