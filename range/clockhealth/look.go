package clockhealth

import (
	"math"
	"time"
)

// Start begins the quarantine of a process that starts: its machine's clock is not trusted before
// it has been compared. A process without peers trusts it.
func (h *Health) Start() {
	if all, _ := h.config.Peers(); all == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.quarantine = &quarantine{
		until:    h.config.Now() + measureFor*int64(h.config.ElectionTimeout),
		patience: disputedFor, since: math.MaxInt64,
	}
}

// Change is the result of a Look. At most one of Jumped and Believed is true, unless a jump and its
// end coincide.
type Change struct {
	// Jumped: the clock has jumped by Moved, and is not trusted from now on.
	Jumped bool
	Moved  time.Duration
	// Believed: a quarantine is over. AfterJump reports that its reason was a jump; then the time
	// of this process has gone forward by Forward, or back, and the users of the clock must be told
	// before anything is served.
	Believed, AfterJump bool
	Forward             time.Duration
}

// Look detects jumps of the clock, and the end of a quarantine. One goroutine calls it, at every
// tick. Until a quarantine is over this process uses the time from before the jump, so that no
// other process sees the new one. It must not serve all the same: a clock that seems to have jumped
// forward may have been right, and the machine may have stood still.
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

// lookLocked accepts how far the clock has moved, unless it jumped, or has made a step after which
// it may be wrong. Then all measurements are forgotten, because they were made with another clock;
// before is the standing until then. The lock is held until the measurements use the new reading,
// so that no measurement is made with the new reading and then moved as well.
func (h *Health) lookLocked(now int64) (moved time.Duration, jumped bool, before Standing) {
	o := &h.mu.offsets
	moved, jumped = h.config.Clock.Steady().Look(func(moved time.Duration) bool {
		if h.leases.looked(moved); !h.step(moved) {
			return true
		}
		after := o.standing(now, moved).consensus
		// A step back puts no other clock further behind.
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

// Believe is Look for a process in which only leases depend on the clock: it accepts whatever the
// clock shows, and ends the leases if it has jumped. The measurements follow the clock as in Look:
// those from before a jump are forgotten.
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

// jumpedLocked begins the quarantine of a clock that has jumped. before is its standing until now.
func (h *Health) jumpedLocked(jump time.Duration, before Standing, enough int) {
	q := &quarantine{jump: jump, patience: disputedFor, since: math.MaxInt64}
	switch {
	case h.mu.quarantine != nil:
		q.patience = h.mu.quarantine.patience // the patience from before the first jump counts
	case before.consensus == undisputed && before.Peers >= enough:
		q.patience = disputedByStep
	}
	h.mu.quarantine = q
}

// peers says how many peers there are, whether any is heard, and how many of their clocks must be
// measured to judge this one: a majority of those that are heard.
type peers struct {
	any, heard bool
	enough     int
}

func (h *Health) peers() peers {
	all, silent := h.config.Peers()
	return peers{any: all > 0, heard: all > silent, enough: (all-silent)/2 + 1}
}

// confirmedLocked reports whether the quarantine is over.
func (h *Health) confirmedLocked(p peers, now int64) bool {
	q := h.mu.quarantine
	s := h.mu.offsets.standing(now, 0)
	settled := q.settled(s.consensus, now)
	switch {
	case !p.any:
		return true // there is no clock to compare with, and none to disagree
	case p.heard && s.Peers >= p.enough && settled:
		h.mu.outvoted, h.mu.streak = false, 0
		return true
	}
	if q.jump != 0 || now < q.until || h.mu.outvoted {
		return false
	}
	// Too few peers are measured to confirm the clock. But those that are, at least one, must not
	// contradict it: that verdict needs two checks, a second apart, and with short ticks the time
	// is up before. With no peer measured, this process may be cut off from all others while
	// clients can reach it, and they would take over its time.
	return s.Peers > 0 && settled
}
