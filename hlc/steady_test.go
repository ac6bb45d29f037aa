package hlc

import (
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

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
	for _, gained := range []time.Duration{time.Millisecond, -time.Millisecond, 250 * time.Millisecond, -250 * time.Millisecond} {
		pass(100*time.Millisecond, gained)
		if off := wall.Now() - s.Now(); off != int64(gained) {
			t.Errorf("before a look it is %d behind, want %d", off, gained)
		}
		if jump := s.Look(); jump != 0 || s.Jumped() {
			t.Errorf("a clock that gained %v jumped by %v", gained, jump)
		}
		if s.Now() != wall.Now() {
			t.Errorf("after a look it shows %d, its clock %d", s.Now(), wall.Now())
		}
	}
}

func TestSteadyLeavesJumpsOut(t *testing.T) {
	for _, by := range []time.Duration{251 * time.Millisecond, time.Hour, -251 * time.Millisecond, -time.Hour} {
		wall := NewManual(1e18)
		var elapsed atomic.Int64
		s := NewSteady(wall, elapsed.Load, 250*time.Millisecond)
		want := s.Now()
		wall.Advance(by)
		if s.Now() != want {
			t.Errorf("a jump by %v shows before it was looked for", by)
		}
		if jump := s.Look(); jump != by || !s.Jumped() {
			t.Errorf("a jump by %v is found as %v, jumped %v", by, jump, s.Jumped())
		}
		for range 5 {
			elapsed.Add(1e6)
			wall.Advance(time.Millisecond)
			want += 1e6
			if jump := s.Look(); jump != 0 || !s.Jumped() || s.Now() != want {
				t.Errorf("later: another jump by %v; jumped %v; it shows %d, want %d", jump, s.Jumped(), s.Now(), want)
			}
		}
		if moved := s.Trust(); moved != by || s.Jumped() || s.Now() != wall.Now() || s.Now() != s.Reading() {
			t.Errorf("trusted: moved by %v, want %v; jumped %v; it shows %d, its clock %d", moved, by, s.Jumped(), s.Now(), wall.Now())
		}
	}
}

// A goroutine that stands still in the middle of a look sees no jump in that.
func TestSteadyLooksSlowly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now, gained int64
		standStill := func() { now += rapid.SampledFrom([]int64{0, 1e3, 1e6, 1e9, 1e12}).Draw(t, "still") }
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
			if jump := s.Look(); jump != 0 {
				t.Fatalf("a jump by %v", jump)
			}
		}
		slow = false
		s.Look()
		if s.Now() != s.Reading() {
			t.Fatalf("it shows %d, its clock %d", s.Now(), s.Reading())
		}
	})
}

// A machine that stood still together with its monotonic clock: nobody has to wait for a look to be unsure, until the clock is trusted.
func TestSteadyIsUnsure(t *testing.T) {
	wall := NewManual(1e18)
	var elapsed atomic.Int64
	s := NewSteady(wall, elapsed.Load, 250*time.Millisecond)
	expect := func(when string, unsure bool) {
		t.Helper()
		if s.Unsure() != unsure {
			t.Errorf("%s: unsure %v", when, !unsure)
		}
	}
	wall.Advance(time.Hour)
	expect("nobody ever looks", false)
	s.Look()
	s.Trust()
	expect("trusted", false)
	for _, by := range []time.Duration{250 * time.Millisecond, -250 * time.Millisecond} {
		wall.Advance(by)
		expect("within the limit", false)
		s.Look()
	}
	for _, by := range []time.Duration{251 * time.Millisecond, -251 * time.Millisecond} {
		wall.Advance(by)
		expect("before a look", true)
		s.Look()
		expect("after a look", true)
		s.Look()
		expect("after another one", true)
		s.Trust()
		expect("trusted", false)
	}
	wall.Advance(time.Second)
	wall.Advance(-time.Second)
	expect("back again", false)
}

// A goroutine that stands still in the middle of Unsure does not overlook that the monotonic clock did, whatever the two times are.
func TestSteadyIsUnsureSlowly(t *testing.T) {
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
		s.Look()
		gained = durations.Draw(t, "suspended")
		still = durations.Draw(t, "still")
		if !s.Unsure() {
			t.Fatal("it is sure")
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
		s.Look()
	}
}

func BenchmarkUnsure(b *testing.B) {
	s := NewSteady(System(), SystemMonotonic(), 0)
	s.Look()
	for b.Loop() {
		s.Unsure()
	}
}

// A machine that was suspended has guessed for how long, and put its wall clock right by that. Steady, on a monotonic clock that stood still meanwhile, does
// not believe it.
func TestSteadyDoesNotBelieveASuspendedMachine(t *testing.T) {
	const slept = 950 * time.Millisecond
	for _, guess := range []time.Duration{300 * time.Millisecond, slept, 1700 * time.Millisecond} {
		wall := NewManual(1e18)
		var awake atomic.Int64
		s := NewSteady(wall, awake.Load, 250*time.Millisecond)
		s.Look()
		before := s.Now()
		wall.Advance(guess)
		if !s.Unsure() {
			t.Errorf("a guess of %v is believed at once", guess)
		}
		if jump := s.Look(); jump != guess || !s.Jumped() || s.Now() != before {
			t.Errorf("a guess of %v: it jumped by %v, and time went on by %d", guess, jump, s.Now()-before)
		}
	}
}
