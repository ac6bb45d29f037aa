package clockhealth

import (
	"math"
	"time"
)

// Change is what a look has found. At most one of the two is true, unless a jump and its end fall
// together.
type Change struct {
	// Jumped: the clock has jumped by Moved, and is not believed from now on.
	Jumped bool
	Moved  time.Duration
	// Believed: a quarantine is over. AfterJump says that it was that of a jump; then the time of
	// this process has gone forward by Forward, or back, and what reads the clock is to hear of it
	// before anything is served.
	Believed, AfterJump bool
	Forward             time.Duration
}

// Look notices jumps of the clock, and the end of a quarantine. It is called with every tick, by
// one goroutine. Until a quarantine is over this process goes by the time before the jump, so that
// no other ever sees another one; it is to serve nothing all the same, since a clock that seems to
// have jumped forward may have been right, and the machine have stood still.
func (h *Health) Look() (c Change) {
	p := h.peers()
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.config.Now()
	if h.config.Clock.Steady() != nil {
		moved, jumped, before := h.lookLocked(now)
		switch {
		case jumped:
			c.Jumped, c.Moved = true, moved
			h.leases.distrust()
			h.jumpedLocked(moved, before, p.enough)
		case h.mu.quarantine != nil && h.step(moved):
			h.mu.quarantine.since = math.MaxInt64
		}
	}
	if h.mu.quarantine == nil || !h.confirmedLocked(p, now) {
		return c
	}
	c.Believed = true
	if h.mu.quarantine.jump != 0 {
		h.leases.distrust() // the machine may have been suspended again since the jump
		c.AfterJump, c.Forward = true, h.config.Clock.Steady().Trust()
	}
	h.mu.quarantine = nil
	return c
}

// lookLocked takes over what the clock has gained or lost, unless it jumped, or has made a step
// after which it may be wrong. Then all measurements are forgotten: they were made with another
// clock; before is how that stood to the others. The lock is held until the measurements go by the
// new reading, so that none is made with that and moved after all.
func (h *Health) lookLocked(now int64) (moved time.Duration, jumped bool, before Standing) {
	o := &h.mu.offsets
	moved, jumped = h.config.Clock.Steady().Look(func(moved time.Duration) bool {
		if h.leases.looked(moved); !h.step(moved) {
			return true
		}
		after := o.standing(now, moved).consensus
		// A step back leaves no clock behind that was not before.
		return after == undisputed ||
			after == disputed && moved < 0 && o.standing(now, 0).consensus == disputed
	})
	switch {
	case jumped:
		before = o.standing(now, 0)
		o.forget()
	case h.step(moved):
		o.shift(moved)
	}
	return moved, jumped, before
}

// Believe is Look for a process of which nothing but leases depends on the clock: it takes over
// what the clock shows, whatever it does, and ends the leases if it has jumped. The measurements
// follow the clock as in Look: those from before a jump are forgotten.
func (h *Health) Believe() {
	steady := h.config.Clock.Steady()
	if steady == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	moved, jumped := steady.Look(func(moved time.Duration) bool {
		h.leases.looked(moved)
		return true
	})
	switch {
	case jumped:
		h.mu.offsets.forget()
		h.leases.distrust()
		steady.Trust()
	case h.step(moved):
		h.mu.offsets.shift(moved)
	}
}
