package hlc

import (
	"sync"
	"sync/atomic"
	"time"
)

// Steady is a physical clock that does not take part in the jumps of another one. Between two looks at that, its time goes on with a
// monotonic clock, which is also cheaper to read. Each look takes over what the clock has gained or lost since the last one, unless
// that is more than a limit. Then the clock has jumped: it was wrong before or is wrong now. Steady goes on as if it had not, until
// its owner has found out and calls Trust.
//
// Its owner calls Look several times a second. A monotonic clock that stood still with the machine looks like a jump forward.
type Steady struct {
	wall      Physical
	monotonic Monotonic
	limit     int64

	// base is what Now adds to the monotonic clock.
	base   atomic.Int64
	jumped atomic.Bool

	mu struct {
		sync.Mutex
		// seen is how far the wall clock was ahead of the monotonic one at the last look.
		seen int64
	}
}

var _ Physical = (*Steady)(nil)

// NewSteady returns a Steady over a physical clock, which shows the right time at this moment as far as is known. A limit of zero or less means
// DefaultMaxOffset.
func NewSteady(wall Physical, monotonic Monotonic, limit time.Duration) *Steady {
	if limit <= 0 {
		limit = DefaultMaxOffset
	}
	s := &Steady{wall: wall, monotonic: monotonic, limit: int64(limit)}
	s.mu.seen = wall.Now() - monotonic()
	s.base.Store(s.mu.seen)
	return s
}

// Now implements Physical.
func (s *Steady) Now() int64 { return s.monotonic() + s.base.Load() }

// Reading is what the clock underneath shows, jumps and all.
func (s *Steady) Reading() int64 { return s.wall.Now() }

// Look compares the clock with the monotonic one. It returns by how much it jumped since the last look, zero if it did not.
func (s *Steady) Look() (jump time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.monotonic()
	wall := s.wall.Now()
	after := s.monotonic()
	// The clock was read at some moment between the two others; nobody knows for how long this goroutine stood still. Of what that
	// allows, what is nearest to the last look is believed.
	ahead := max(wall-after, min(wall-before, s.mu.seen))
	moved := ahead - s.mu.seen
	s.mu.seen = ahead
	if moved > s.limit || moved < -s.limit {
		s.jumped.Store(true)
		return time.Duration(moved)
	}
	if !s.jumped.Load() {
		s.base.Store(ahead)
	}
	return 0
}

// Jumped says whether there was a jump that was not followed by Trust.
func (s *Steady) Jumped() bool { return s.jumped.Load() }

// Trust takes over what the clock showed at the last look: it is known to be right. It returns by how much Now goes forward, or back.
func (s *Steady) Trust() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	by := s.mu.seen - s.base.Load()
	s.base.Store(s.mu.seen)
	s.jumped.Store(false)
	return time.Duration(by)
}
