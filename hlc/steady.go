package hlc

import (
	"sync"
	"sync/atomic"
	"time"
)

// Steady is a physical clock that leaves out the jumps of another one. Between two looks at that
// clock, a monotonic clock, which is also cheaper to read, advances its time. Each look takes over
// what the clock has gained or lost since the last one, unless that exceeds a limit, or its owner
// rejects it. Then the clock has jumped: it was wrong before or is wrong now. Steady continues as
// if it had not, until its owner has found out and calls Trust.
//
// Its owner calls Look several times a second. A monotonic clock that stood still with the machine
// looks like a jump forward. That is intended, and the reason for an AwakeMonotonic: the length of
// the suspension is not known exactly. Until the next look Now is too low then. A caller that
// chooses a timestamp, or answers with the time, calls Reading; a caller that relies on the
// monotonic clock, Untrusted.
type Steady struct {
	wall      Physical
	monotonic Monotonic
	limit     time.Duration

	// base is added to the monotonic clock by Now.
	base   atomic.Int64
	jumped atomic.Bool
	// seen is how far the wall clock was ahead of the monotonic one at the last look, or at the
	// beginning. Only Look writes it.
	seen atomic.Int64

	// mu orders Look and Trust.
	mu sync.Mutex
}

var _ Physical = (*Steady)(nil)

const (
	// A step is at least a stepPart-th of the limit.
	stepPart = 8
	// leastStep is the least step even if the limit is tiny: the time that it may take to read two
	// clocks of a machine on which that is slow.
	leastStep = 20 * time.Microsecond
)

// Step returns how far a clock has to move between two looks, against a monotonic one, to count as
// a step, given how far the clocks of a cluster may differ. A smaller difference may come from the
// monotonic clock, which need not run exactly as fast.
func Step(limit time.Duration) time.Duration { return max(limit/stepPart, leastStep) }

// NewSteady returns a Steady over a physical clock, which now shows the right time as far as is
// known. A limit of zero or less means DefaultMaxOffset.
func NewSteady(wall Physical, monotonic Monotonic, limit time.Duration) *Steady {
	if limit <= 0 {
		limit = DefaultMaxOffset
	}
	s := &Steady{wall: wall, monotonic: monotonic, limit: limit}
	seen := wall.Now() - monotonic()
	s.seen.Store(seen)
	s.base.Store(seen)
	return s
}

// Now implements Physical.
func (s *Steady) Now() int64 { return s.monotonic() + s.base.Load() }

// Machine returns the reading of the clock underneath, including jumps, and how far it has moved
// since the last look.
func (s *Steady) Machine() (wall int64, moved time.Duration) {
	seen := s.seen.Load()
	before := s.monotonic()
	wall = s.wall.Now()
	return wall, time.Duration(wall - before - seen)
}

// Look compares the clock with the monotonic one. It returns how far the clock has moved since the
// last look, and whether that was a jump. Within the limit, takes decides: if it returns false,
// that is a jump; with nil it never is. takes is called with Steady locked, before the new time can
// be read, and not while an earlier jump waits for Trust: until then the clock is untrusted, and a
// caller that relies on takes has to act before Trust.
func (s *Steady) Look(takes func(moved time.Duration) bool) (moved time.Duration, jumped bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.monotonic()
	wall := s.wall.Now()
	after := s.monotonic()
	// The clock was read at some moment between the two others; how long this goroutine stood still
	// in between is not known. Of the possible values, the nearest to the last look is taken.
	seen := s.seen.Load()
	ahead := max(wall-after, min(wall-before, seen))
	moved = time.Duration(ahead - seen)
	waiting := s.jumped.Load()
	jumped = moved > s.limit || moved < -s.limit || (!waiting && takes != nil && !takes(moved))
	if jumped {
		s.jumped.Store(true) // before seen: Untrusted finds one of the two
	}
	if !jumped && !waiting {
		// before seen: a reader that does not find the clock moved uses the new base
		s.base.Store(ahead)
	}
	s.seen.Store(ahead)
	return moved, jumped
}

// Jumped reports whether there was a jump that was not followed by Trust.
func (s *Steady) Jumped() bool { return s.jumped.Load() }

// Trust takes over the time of the clock at the last look, which is known to be right. It returns
// how far Now goes forward, or back.
func (s *Steady) Trust() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	seen := s.seen.Load()
	by := seen - s.base.Load()
	s.base.Store(seen)
	s.jumped.Store(false)
	return time.Duration(by)
}

// Reading returns Now, and whether others may rely on it. They may not if there was a jump that was
// not followed by Trust, or if the clock has made a step (see Step) since the last look: then Now
// may be behind the true time by as much as the monotonic clock stood still. It takes no lock, and
// costs one more reading of a clock than Now does, and a few if this goroutine stands still in
// between.
func (s *Steady) Reading() (now int64, trusted bool) {
	step := Step(s.limit)
	now, moved, trusted := s.read(step)
	return now, trusted && moved < step && moved > -step
}

// Untrusted reports whether there was a jump that was not followed by Trust, or the clock has moved
// by that much since the last look: the monotonic clock may have stood still for as long. It takes
// no lock, and costs one reading of each clock, or a few.
func (s *Steady) Untrusted(moved time.Duration) bool {
	_, by, trusted := s.read(moved)
	return !trusted || by >= moved || by <= -moved
}

// Reached is Now, unless the clock has made a step forward since the last look that the next one
// may take over without a jump: then it counts. It may be too high by as much.
func (s *Steady) Reached() int64 {
	now, moved, _ := s.read(Step(s.limit))
	return now + int64(max(0, min(moved, s.limit)))
}

// Span is between what times the true one is if the clock underneath is right: Now, or, if the
// clock has moved since the last look, what it shows.
func (s *Steady) Span() (earliest, latest int64) {
	now, moved, _ := s.read(leastStep)
	return now + int64(min(0, moved)), now + int64(max(0, moved))
}

// readings is how often both clocks are read to find out that they have not moved apart.
const readings = 3

// read returns Now, and how far the clock has moved since the last look. trusted is false if there
// was a jump that was not followed by Trust. It reads again if the clock seems to have moved by too
// much, as it does if this goroutine stood still.
func (s *Steady) read(much time.Duration) (now int64, moved time.Duration, trusted bool) {
	for range readings {
		// INVARIANT: seen is read before jumped and base, which Look writes first; jumped before
		// base, which Trust writes first; and the monotonic clock before the wall clock. A
		// goroutine that stands still in between then finds the wall clock further ahead than it
		// is: that may be taken for a step without being one, and a monotonic clock that stood
		// still is never overlooked.
		seen := s.seen.Load()
		if s.jumped.Load() {
			return s.Now(), 0, false
		}
		base, before := s.base.Load(), s.monotonic()
		now, moved = before+base, time.Duration(s.wall.Now()-before-seen)
		if moved < much && moved > -much {
			break
		}
	}
	return now, moved, true
}
