package clockhealth

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// State says whether a process may rely on its clock, and if not, why.
type State int

const (
	// Trusted: nothing is known against the clock.
	Trusted State = iota
	// Uncompared: the process has just started, and has not compared its clock with its peers' yet.
	Uncompared
	// Jumped: the clock has jumped, or has made a step that took it too far from a peer's, and the
	// peers have not confirmed that it is right.
	Jumped
	// Outvoted: the clock differs by more than the maximum offset from half of all clocks, or is
	// behind by as much a clock that does not.
	Outvoted
)

// Config configures a Health. All fields are required.
type Config struct {
	// Clock is the clock that is judged. Only a clock over an hlc.Steady can be found to jump.
	Clock *hlc.Clock
	// Now is the monotonic clock that leases are measured with, in nanoseconds.
	Now func() int64
	// LeaseDuration is how long a lease lasts. LeaseSlack is how long the monotonic clock may have
	// stood still without a lease lasting longer than was promised (Slack).
	LeaseDuration, LeaseSlack time.Duration
	// ElectionTimeout is the shortest election timeout.
	ElectionTimeout time.Duration
	// Peers returns how many hosts share groups with this one, and how many of them are silent.
	Peers func() (all, silent int)
}

// Health judges the clock of a process. It is safe for concurrent use.
type Health struct {
	config Config
	limit  int64 // the maximum offset, nanoseconds
	leases leases

	mu struct {
		sync.Mutex
		offsets offsets
		// outvoted is the verdict of the checks; streak counts the checks in a row that disagreed
		// with it.
		outvoted bool
		streak   int
		// quarantine is nil if there is none.
		quarantine *quarantine
	}
}

// New returns the Health of a clock against which nothing is known.
func New(c Config) *Health {
	h := &Health{config: c, limit: int64(c.Clock.MaxOffset()),
		leases: leases{now: c.Now, duration: c.LeaseDuration, slack: c.LeaseSlack}}
	h.mu.offsets.init(h.limit)
	return h
}

// State returns whether the process may rely on its clock. jump is how far the clock jumped, in
// state Jumped.
func (h *Health) State() (s State, jump time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch q := h.mu.quarantine; {
	case h.mu.outvoted:
		return Outvoted, 0
	case q == nil:
		return Trusted, 0
	case q.jump != 0:
		return Jumped, q.jump
	}
	return Uncompared, 0
}

// LeaseFloor returns the earliest beginning of a lease that counts; 0: any time. ok is false if no
// lease counts now, because the monotonic clock may have stood still since the last Look. It takes
// no lock, and costs one reading of each clock.
func (h *Health) LeaseFloor() (from int64, ok bool) {
	if s := h.config.Clock.Steady(); s != nil && s.Untrusted(h.leases.slack) {
		return 0, false
	}
	return h.leases.from.Load(), true
}

// Heard takes the clock of a peer from a ping, at its arrival. This process's clock is read with
// the lock held, so a measurement after a Look uses the clock as it was then. Between a step and
// the Look that finds it, nothing is measured.
func (h *Health) Heard(peer uint64, physical uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wall, moved := h.config.Clock.Machine()
	if h.step(moved) {
		return
	}
	h.mu.offsets.measure(peer, int64(physical)-wall, h.config.Now())
}

// Offsets returns how far the clocks of peers that were heard lately are ahead of this one.
func (h *Health) Offsets() map[uint64]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.offsets.known(h.config.Now())
}

// Clocks returns the clocks as they are now, in Unix nanoseconds: that of this machine, and those
// of peers that were heard lately, which lag by the delay of a ping.
func (h *Health) Clocks() (own int64, peers map[uint64]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own, moved := h.config.Clock.Machine()
	peers = make(map[uint64]int64)
	for id, offset := range h.mu.offsets.known(h.config.Now()) {
		// It was measured against this clock as it was before a step that Look has not seen yet.
		peers[id] = own - int64(moved) + int64(offset)
	}
	return own, peers
}

// Agrees reports whether a peer's clock is, as far as is known, close enough to this one's.
func (h *Health) Agrees(peer uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ns, known := h.mu.offsets.of(peer, h.config.Now())
	return !known || (ns <= h.limit && ns >= -h.limit)
}

// Ahead returns how far the hybrid clock is ahead of the physical one, and whether that is more
// than other nodes accept. Peers and correct readings of the physical clock bring it to twice
// hlc.Clock.MaxAhead at most. More comes from a physical clock that was wrong, and stays when that
// is right again. Without peers there is no other clock that could be behind.
func (h *Health) Ahead() (by time.Duration, tooFar bool) {
	c := h.config.Clock
	if by = time.Duration(c.Now().Wall - c.Physical()); by <= 2*c.MaxAhead() {
		return by, false
	}
	all, _ := h.config.Peers()
	return by, all > 0
}

// Rewind sets the hybrid clock back to the physical one. The caller must serve and lead nothing by
// the timestamps that are forgotten. The effect is that of a restart: leaders rely only on
// timestamps that versions, closed timestamps and served reads contain, not on their own clock
// alone.
func (h *Health) Rewind() { h.config.Clock.Rewind() }

// step reports whether a clock that has moved by so much between two calls of Look has made a step.
// Smaller moves are left to the checks.
func (h *Health) step(moved time.Duration) bool {
	least := hlc.Step(time.Duration(h.limit))
	return moved >= least || moved <= -least
}
