package hlc

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func reading(s *Steady) int64 {
	wall, _ := s.Machine()
	return wall
}

func TestSteadyFollowsItsClock(t *testing.T) {
	wall := NewManual(1e18)
	var elapsed atomic.Int64
	s := NewSteady(wall, elapsed.Load, 250*time.Millisecond)
	pass := func(d, gained time.Duration) {
		elapsed.Add(int64(d))
		wall.Advance(d + gained)
	}
	pass(time.Hour, 0)
	if s.Now() != wall.Now() {
		t.Errorf("an hour later it shows %d, its clock %d", s.Now(), wall.Now())
	}
	for _, gained := range []time.Duration{time.Millisecond, -time.Millisecond,
		250 * time.Millisecond, -250 * time.Millisecond} {
		pass(100*time.Millisecond, gained)
		if off := wall.Now() - s.Now(); off != int64(gained) {
			t.Errorf("before a look it is %d behind, want %d", off, gained)
		}
		if shown, moved := s.Machine(); shown != wall.Now() || moved != gained {
			t.Errorf(
				"before a look the reading is %d, and moved by %v; want %d, %v",
				shown,
				moved,
				wall.Now(),
				gained,
			)
		}
		if moved, jumped := s.Look(nil); jumped || moved != gained || s.Jumped() {
			t.Errorf("a clock that gained %v moved by %v, jumped: %v", gained, moved, jumped)
		}
		if s.Now() != wall.Now() {
			t.Errorf("after a look it shows %d, its clock %d", s.Now(), wall.Now())
		}
	}
}

func TestSteadyLeavesJumpsOut(t *testing.T) {
	for _, by := range []time.Duration{251 * time.Millisecond, time.Hour, -251 * time.Millisecond,
		-time.Hour} {
		wall := NewManual(1e18)
		var elapsed atomic.Int64
		s := NewSteady(wall, elapsed.Load, 250*time.Millisecond)
		want := s.Now()
		wall.Advance(by)
		if s.Now() != want {
			t.Errorf("a jump by %v shows before it was looked for", by)
		}
		if moved, jumped := s.Look(nil); !jumped || moved != by || !s.Jumped() {
			t.Errorf("a jump by %v is found as %v, jumped %v", by, moved, s.Jumped())
		}
		for range 5 {
			elapsed.Add(1e6)
			wall.Advance(time.Millisecond)
			want += 1e6
			if moved, jumped := s.Look(nil); jumped || moved != 0 || !s.Jumped() ||
				s.Now() != want {
				t.Errorf(
					"later: another jump by %v; jumped %v; it shows %d, want %d",
					moved,
					s.Jumped(),
					s.Now(),
					want,
				)
			}
		}
		if moved := s.Trust(); moved != by || s.Jumped() || s.Now() != wall.Now() ||
			s.Now() != reading(s) {
			t.Errorf(
				"trusted: moved by %v, want %v; jumped %v; it shows %d, its clock %d",
				moved,
				by,
				s.Jumped(),
				s.Now(),
				wall.Now(),
			)
		}
	}
}

// What the owner does not take is a jump, however short, and no caller sees it before Trust. While
// that is waited for nothing is asked.
func TestSteadyLeavesOutWhatIsNotTaken(t *testing.T) {
	for _, by := range []time.Duration{time.Millisecond, -time.Millisecond, 250 * time.Millisecond,
		-250 * time.Millisecond} {
		wall := NewManual(1e18)
		var elapsed atomic.Int64
		s := NewSteady(wall, elapsed.Load, 250*time.Millisecond)
		asked := 0
		refuse := func(moved time.Duration) bool {
			if asked++; moved != by || s.Now() != 1e18 {
				t.Errorf("asked about %v, at %d; it is %v", moved, s.Now(), by)
			}
			return false
		}
		wall.Advance(by)
		if moved, jumped := s.Look(refuse); !jumped || moved != by || !s.Jumped() ||
			s.Now() != 1e18 ||
			reading(s) != wall.Now() ||
			asked != 1 {
			t.Errorf(
				"%v was not taken: moved by %v, jumped %v; it shows %d; asked %d times",
				by,
				moved,
				jumped,
				s.Now(),
				asked,
			)
		}
		wall.Advance(by)
		if moved, jumped := s.Look(refuse); jumped || moved != by || !s.Jumped() ||
			s.Now() != 1e18 ||
			reading(s) != wall.Now() ||
			asked != 1 {
			t.Errorf(
				"%v once more: moved by %v, jumped %v; it shows %d; asked %d times",
				by,
				moved,
				jumped,
				s.Now(),
				asked,
			)
		}
		if moved := s.Trust(); moved != 2*by || s.Now() != wall.Now() {
			t.Errorf(
				"trusted: it moved by %v and shows %d, its clock %d",
				moved,
				s.Now(),
				wall.Now(),
			)
		}
	}
}

// A goroutine that stands still in the middle of a look sees no jump in that.
func TestSteadyLooksSlowly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now, gained int64
		standStill := func() {
			now += rapid.SampledFrom([]int64{0, 1e3, 1e6, 1e9, 1e12}).Draw(t,
				"still")
		}
		slow := false
		monotonic := func() int64 {
			if slow {
				standStill()
			}
			return now
		}
		s := NewSteady(physicalFunc(func() int64 {
			if slow {
				standStill()
			}
			return 1e18 + now + gained
		}), monotonic, 250*time.Millisecond)
		slow = true
		for range 20 {
			now += 1e8
			gained += rapid.Int64Range(-1e7, 1e7).Draw(t, "gained")
			if moved, jumped := s.Look(nil); jumped {
				t.Fatalf("a jump by %v", moved)
			}
		}
		slow = false
		s.Look(nil)
		if s.Now() != reading(s) {
			t.Fatalf("it shows %d, its clock %d", s.Now(), reading(s))
		}
	})
}

// A machine that stood still together with its monotonic clock: no caller has to wait for a look to
// be untrusted, until that or, after a jump, until the clock is trusted.
func TestSteadyIsUntrusted(t *testing.T) {
	const limit, step = 80 * time.Millisecond, 10 * time.Millisecond
	wall := NewManual(1e18)
	var elapsed atomic.Int64
	s := NewSteady(wall, elapsed.Load, limit)
	c := NewClock(s, FixedBound(limit))
	expect := func(when string, untrusted bool) {
		t.Helper()
		if s.Untrusted(step) != untrusted {
			t.Errorf("%s: untrusted %v", when, !untrusted)
		}
		if now, trusted := s.Reading(); trusted == untrusted || now != s.Now() {
			t.Errorf("%s: read %d, trusted %v", when, now, trusted)
		}
		if _, trusted := c.Reading(); trusted == untrusted {
			t.Errorf("%s: the hybrid clock is trusted: %v", when, trusted)
		}
	}
	expect("at the beginning", false)
	wall.Advance(time.Hour)
	expect("not looked at", true)
	s.Look(nil)
	s.Trust()
	expect("trusted", false)
	for _, by := range []time.Duration{step - 1, 1 - step} {
		wall.Advance(by)
		expect("less than a step", false)
	}
	s.Look(nil)
	for _, by := range []time.Duration{step, -step, limit, -limit} {
		wall.Advance(by)
		expect("before a look at a step", true)
		if reached, want := c.Reached(), s.Now()+int64(max(0, by)); reached != want {
			t.Errorf("after a step of %v it has reached %d, want %d", by, reached, want)
		}
		if s.Untrusted(by.Abs() + 1) {
			t.Errorf("it moved by more than %v", by)
		}
		s.Look(nil)
		expect("after a look at a step", false)
	}
	for _, by := range []time.Duration{limit + 1, -limit - 1} {
		wall.Advance(by)
		expect("before a look", true)
		if reached, want := s.Reached(), s.Now()+int64(max(0, min(by, limit))); reached != want {
			t.Errorf("after a jump of %v it has reached %d, want %d", by, reached, want)
		}
		s.Look(nil)
		expect("after a look", true)
		if !s.Untrusted(time.Hour) {
			t.Error("it has jumped, and is untrusted only of little")
		}
		s.Look(nil)
		expect("after another one", true)
		s.Trust()
		expect("trusted", false)
	}
	wall.Advance(time.Second)
	wall.Advance(-time.Second)
	expect("back again", false)
}

// A time that is told is one of before the step, of a clock that had not made it yet, or of after
// the look that took it over, whatever looks meanwhile.
func TestSteadyTellsNoTimeInBetween(t *testing.T) {
	const limit = 250 * time.Millisecond
	wall := NewManual(1e18)
	s := NewSteady(wall, func() int64 { return 0 }, limit)
	s.Look(nil)
	var done atomic.Bool
	var g sync.WaitGroup
	for range 2 {
		g.Go(func() {
			for !done.Load() {
				low := wall.Now()
				if now, trusted := s.Reading(); trusted && now < low {
					t.Errorf("%v behind the clock", time.Duration(low-now))
					return
				}
			}
		})
	}
	for range 20000 {
		wall.Advance(limit / 2)
		s.Look(nil)
	}
	done.Store(true)
	g.Wait()
}

// A goroutine that stood still between its readings of the clocks reads them again.
func TestSteadyReadsAgain(t *testing.T) {
	const limit = 8 * time.Millisecond
	var elapsed int64
	still := 0
	s := NewSteady(physicalFunc(func() int64 {
		if still > 0 {
			still--
			elapsed += int64(time.Second)
		}
		return 1e18 + elapsed
	}), func() int64 { return elapsed }, limit)
	s.Look(nil)
	for n := range readings {
		still = n
		if _, trusted := s.Reading(); !trusted || s.Untrusted(limit/8) {
			t.Errorf("it is untrusted after %d times", n)
		}
	}
	still = readings
	if _, trusted := s.Reading(); trusted {
		t.Error("it is trusted")
	}
}

// A goroutine that stands still in the middle of Untrusted does not overlook that the monotonic
// clock did, whatever the two times are.
func TestSteadyIsUntrustedSlowly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		durations := rapid.Int64Range(251e6, 1e12)
		var elapsed, gained, still int64
		s := NewSteady(physicalFunc(func() int64 {
			elapsed += still
			return 1e18 + elapsed + gained
		}), func() int64 {
			defer func() { elapsed += still }()
			return elapsed
		}, 250*time.Millisecond)
		s.Look(nil)
		gained = durations.Draw(t, "suspended")
		still = durations.Draw(t, "still")
		if _, trusted := s.Reading(); trusted || !s.Untrusted(250*time.Millisecond) {
			t.Fatal("it is trusted")
		}
	})
}

type physicalFunc func() int64

func (f physicalFunc) Now() int64 { return f() }

func BenchmarkSteadyNow(b *testing.B) {
	c := NewClock(NewSteady(System(), SystemMonotonic(), 0), FixedBound(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Now()
		}
	})
}

func BenchmarkLook(b *testing.B) {
	s := NewSteady(System(), SystemMonotonic(), 0)
	for b.Loop() {
		s.Look(nil)
	}
}

func BenchmarkUntrusted(b *testing.B) {
	s := NewSteady(System(), SystemMonotonic(), 0)
	s.Look(nil)
	for b.Loop() {
		s.Untrusted(time.Millisecond)
	}
}

func BenchmarkReading(b *testing.B) {
	c := NewClock(NewSteady(System(), SystemMonotonic(), 0), FixedBound(0))
	c.Steady().Look(nil)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Reading()
		}
	})
}

// A machine that was suspended has guessed for how long, and put its wall clock right by that.
// Steady, on a monotonic clock that stood still meanwhile, does not believe it.
func TestSteadyDoesNotBelieveASuspendedMachine(t *testing.T) {
	const slept = 950 * time.Millisecond
	for _, guess := range []time.Duration{300 * time.Millisecond, slept, 1700 * time.Millisecond} {
		wall := NewManual(1e18)
		var awake atomic.Int64
		s := NewSteady(wall, awake.Load, 250*time.Millisecond)
		s.Look(nil)
		before := s.Now()
		wall.Advance(guess)
		if !s.Untrusted(250 * time.Millisecond) {
			t.Errorf("a guess of %v is believed at once", guess)
		}
		if moved, _ := s.Look(nil); moved != guess || !s.Jumped() || s.Now() != before {
			t.Errorf(
				"a guess of %v: it jumped by %v, and time went on by %d",
				guess,
				moved,
				s.Now()-before,
			)
		}
	}
}

// A clock that has been put right, and says that its error is small from now on: true time is in
// the bounds before the next look, too.
func TestBoundsOfASteadyClock(t *testing.T) {
	const was, is = 40 * time.Millisecond, time.Millisecond
	for _, off := range []time.Duration{-25 * time.Millisecond, 25 * time.Millisecond} {
		truth := int64(1e18)
		wall := NewManual(truth + int64(off))
		known := kernelReading{maxErrorMicros: was.Microseconds(), synchronised: true}
		s := NewSteady(wall, func() int64 { return 0 }, DefaultMaxOffset)
		c := NewClock(
			s,
			&kernelBound{
				fallback: DefaultMaxOffset,
				read:     func() (kernelReading, bool) { return known, true },
			},
		)
		check := func(when string, width time.Duration) {
			t.Helper()
			if earliest, latest := c.Bounds(); earliest > truth || latest < truth ||
				latest-earliest > int64(2*width) {
				t.Errorf(
					"%v off, %s: from %v to %v off",
					off,
					when,
					time.Duration(earliest-truth),
					time.Duration(latest-truth),
				)
			}
		}
		check("at first", was)
		wall.Advance(-off)
		known.maxErrorMicros = is.Microseconds()
		check("put right", is+off.Abs())
		s.Look(nil)
		check("looked at", is)
	}
}
