package clockhealth

import (
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// State is whether a process may go by its clock, and if not, why.
type State int

const (
	// Trusted: the clock is as right as is known.
	Trusted State = iota
	// Uncompared: the process has just started, and has not compared its clock with its peers' yet.
	Uncompared
	// Jumped: the clock has jumped, or has made a step that took it too far from a peer's, and the
	// peers have not confirmed that it is right.
	Jumped
	// Outvoted: the clock is off by more than the maximum offset from half of all clocks, or behind
	// one by as much that is not.
	Outvoted
)

// CheckPeriod is how often Check is to be called.
const CheckPeriod = time.Second

// Config configures a Health. All fields are required.
type Config struct {
	// Clock is what is judged. If it is over an hlc.Steady, Health looks at that; else it cannot
	// jump.
	Clock *hlc.Clock
	// Now is the monotonic clock that leases are measured with, in nanoseconds.
	Now func() int64
	// LeaseDuration is how long a lease lasts, LeaseSlack for how long the monotonic clock may have
	// stood still without a lease lasting longer than was promised (Slack).
	LeaseDuration, LeaseSlack time.Duration
	// ElectionTimeout is the shortest one.
	ElectionTimeout time.Duration
	// Peers is how many hosts share groups with this one, and how many of them are silent.
	Peers func() (all, silent int)
}

// Health is what a process believes of clocks. It is safe for concurrent use.
type Health struct {
	config Config
	limit  int64 // the maximum offset, nanoseconds
	leases leases

	mu struct {
		sync.Mutex
		offsets offsets
		// outvoted is the verdict of the checks; streak is how many in a row disagreed with it.
		outvoted bool
		streak   int
		// quarantine is nil if there is none.
		quarantine *quarantine
	}
}

// New returns the health of a clock that nothing is known against.
func New(c Config) *Health {
	h := &Health{config: c, limit: int64(c.Clock.MaxOffset())}
	h.leases.init(&c)
	h.mu.offsets.init(h.limit)
	return h
}

// State is whether the process may go by its clock. jump is by how much the clock jumped, if that
// is the state.
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

// Heard takes the clock of a peer from a ping, at its arrival. The own clock is read with the lock
// held: whatever is measured after a look is measured with the clock as it was then. Nothing is
// measured between a step and the look that finds it.
func (h *Health) Heard(peer uint64, physical uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	wall, moved := h.config.Clock.Machine()
	if h.step(moved) {
		return
	}
	h.mu.offsets.measure(peer, int64(physical)-wall, h.config.Now())
}

// Offsets is how far the peers' clocks are ahead of this one, of those that were heard lately.
func (h *Health) Offsets() map[uint64]time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.offsets.known(h.config.Now())
}

// Clocks is what the clocks show now, in Unix nanoseconds: that of this process's machine, and those
// of the peers that were heard lately, which are behind by as long as a ping takes.
func (h *Health) Clocks() (own int64, peers map[uint64]int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	own, moved := h.config.Clock.Machine()
	peers = make(map[uint64]int64)
	for id, offset := range h.mu.offsets.known(h.config.Now()) {
		// It was measured against this clock as it was before a step that was not looked at yet.
		peers[id] = own - int64(moved) + int64(offset)
	}
	return own, peers
}

// Agrees says whether a peer's clock is, as far as is known, close enough to this one's.
func (h *Health) Agrees(peer uint64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	ns, known := h.mu.offsets.of(peer, h.config.Now())
	return !known || (ns <= h.limit && ns >= -h.limit)
}

// Ahead is how far the hybrid clock is ahead of the physical one, and whether that is more than
// other nodes accept. Peers and two right readings of the physical clock bring it to twice
// hlc.Clock.MaxAhead at most; more comes of a physical clock that was wrong, and stays when that is
// right again. Without peers there is no other clock that could be behind.
func (h *Health) Ahead() (by time.Duration, tooFar bool) {
	c := h.config.Clock
	if by = time.Duration(c.Now().Wall - c.Physical()); by <= 2*c.MaxAhead() {
		return by, false
	}
	all, _ := h.config.Peers()
	return by, all > 0
}

// Rewind takes the hybrid clock back to the physical one. The caller serves and leads nothing by
// the timestamps that are forgotten. What holds of a restart holds then: leaders take nothing from
// their own clock alone that versions, closed timestamps and served reads do not say.
func (h *Health) Rewind() { h.config.Clock.Rewind() }

// step says whether a clock that has moved by so much between two looks has made a step. What is
// less is left to the checks.
func (h *Health) step(moved time.Duration) bool {
	least := hlc.Step(time.Duration(h.limit))
	return moved >= least || moved <= -least
}
