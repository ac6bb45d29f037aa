package hlc

import (
	"errors"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var genTimestamp = rapid.Custom(func(t *rapid.T) Timestamp {
	return Timestamp{
		Wall: rapid.OneOf(rapid.Int64Range(0, math.MaxInt64),
			rapid.SampledFrom([]int64{0, 1, math.MaxInt64 - 1, math.MaxInt64})).
			Draw(t, "wall"),
		Logical: rapid.OneOf(rapid.Uint32(), rapid.SampledFrom([]uint32{0, 1, math.MaxUint32})).
			Draw(t, "logical"),
	}
})

func TestTimestampOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := genTimestamp.Draw(t, "a"), genTimestamp.Draw(t, "b")
		if n := b2i(a.Less(b)) + b2i(b.Less(a)) + b2i(a == b); n != 1 {
			t.Fatalf("%s and %s: %d of less, greater and equal", a, b, n)
		}
		if a.LessEq(b) == b.Less(a) || (a.Compare(b) < 0) != a.Less(b) ||
			a.Compare(b) != -b.Compare(a) {
			t.Fatalf("%s and %s compare badly", a, b)
		}
		if Max(a, b) != Max(b, a) || Min(a, b) != Min(b, a) || Max(a, b).Less(Min(a, b)) {
			t.Fatalf("%s and %s: max %s, min %s", a, b, Max(a, b), Min(a, b))
		}
		if a != MaxTimestamp && (!a.Less(a.Next()) || a.Next().Prev() != a) {
			t.Fatalf("next of %s is %s, and back is %s", a, a.Next(), a.Next().Prev())
		}
		if a != (Timestamp{}) && (!a.Prev().Less(a) || a.Prev().Next() != a) {
			t.Fatalf("previous of %s is %s, and back is %s", a, a.Prev(), a.Prev().Next())
		}
		// Nothing lies between a timestamp and its next.
		if a.Less(b) && b.Less(a.Next()) {
			t.Fatalf("%s lies between %s and its next", b, a)
		}
		if MaxTimestamp.Less(a) || MaxTimestamp.Next() != MaxTimestamp ||
			(Timestamp{}).Prev() != (Timestamp{}) {
			t.Fatal("the ends do not hold")
		}
	})
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestTimestampAdd(t *testing.T) {
	for _, c := range []struct {
		in   Timestamp
		d    time.Duration
		want Timestamp
	}{
		{Timestamp{5, 7}, 3, Timestamp{8, 7}},
		{Timestamp{5, 7}, -3, Timestamp{2, 7}},
		{Timestamp{5, 7}, -5, Timestamp{0, 7}},
		{Timestamp{5, 7}, -6, Timestamp{}},
		{Timestamp{5, 7}, 0, Timestamp{5, 7}},
		{Timestamp{math.MaxInt64, 7}, 1, MaxTimestamp},
		{Timestamp{0, 7}, math.MinInt64, Timestamp{}},
	} {
		if got := c.in.Add(c.d); got != c.want {
			t.Errorf("%s + %d = %s, want %s", c.in, c.d, got, c.want)
		}
	}
}

func TestParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ts := genTimestamp.Draw(t, "ts")
		if got, err := Parse(ts.String()); err != nil || got != ts {
			t.Fatalf("%s comes back as %s, %v", ts, got, err)
		}
	})
	for s, want := range map[string]Timestamp{
		"1763632000.123456789.3":          {1763632000_123456789, 3},
		"1763632000":                      {1763632000_000000000, 0},
		"1.5":                             {1_500000000, 0},
		"0.000000001.0":                   {1, 0},
		"9223372036.854775807.4294967295": MaxTimestamp,
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%q is %v, %v, want %v", s, got, err, want)
		}
	}
	for _, s := range []string{"", ".", "1.", "1.2.", "1..2", ".1", "-1", "+1", "1.-2", "x",
		"1.0000000001", "1.0.4294967296",
		"9223372037", "9223372036.854775808", "99999999999999999999", "1.2.3.4",
		" 1", "1e9", "0x1", "1_0"} {
		if got, err := Parse(s); err == nil {
			t.Errorf("%q is taken for %s", s, got)
		}
	}
	if got := (Timestamp{Wall: -1}).String(); got != "-0.000000001.0" {
		t.Errorf("a timestamp that is not valid prints as %q", got)
	}
	if got := (Timestamp{1763632000_123456789, 3}).String(); got != "1763632000.123456789.3" {
		t.Errorf("printed as %q", got)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("1763632000.123456789.3")
	f.Add("0")
	f.Add("1.2.3.4")
	f.Fuzz(func(t *testing.T, s string) {
		ts, err := Parse(s)
		if err != nil {
			return
		}
		if ts.Wall < 0 {
			t.Fatalf("%q is %v", s, ts)
		}
		if again, err := Parse(ts.String()); err != nil || again != ts {
			t.Fatalf("%q is %s, which is %s, %v", s, ts, again, err)
		}
	})
}

func TestFromTime(t *testing.T) {
	now := time.Unix(1763632000, 5)
	if got := FromTime(now); got != (Timestamp{Wall: 1763632000_000000005}) ||
		!got.Time().Equal(now) {
		t.Errorf("%v", got)
	}
	if got := FromTime(time.Unix(-1, 0)); !got.IsZero() {
		t.Errorf("before the epoch: %v", got)
	}
}

// TestClockBesideModel: whatever the physical clock does and whatever comes in, Now is above
// everything before, and Update refuses exactly what is too far ahead and new.
func TestClockBesideModel(t *testing.T) {
	const offset = 1000
	rapid.Check(t, func(t *rapid.T) {
		manual := NewManual(1_000_000)
		c := NewClock(manual, FixedBound(offset))
		var highest Timestamp
		t.Repeat(map[string]func(*rapid.T){
			"jump": func(t *rapid.T) {
				manual.Set(rapid.Int64Range(0, 2_000_000).Draw(t, "to"))
			},
			"tick": func(t *rapid.T) {
				manual.Advance(time.Duration(rapid.Int64Range(0, 10).Draw(t, "by")))
			},
			"now": func(t *rapid.T) {
				got := c.Now()
				if !highest.Less(got) {
					t.Fatalf("%s after %s", got, highest)
				}
				want := highest.Next()
				if manual.Now() > highest.Wall {
					want = Timestamp{Wall: manual.Now()}
				}
				if got != want {
					t.Fatalf(
						"now is %s; the physical clock stands at %d, the highest before is %s",
						got,
						manual.Now(),
						highest,
					)
				}
				highest = got
			},
			"update": func(t *rapid.T) {
				in := Timestamp{
					Wall: max(
						0,
						manual.Now()+rapid.Int64Range(-3*offset, 3*offset).Draw(t, "ahead"),
					),
					Logical: rapid.OneOf(rapid.Uint32Range(0, 3),
						rapid.Just(uint32(math.MaxUint32))).
						Draw(t, "logical"),
				}
				err := c.Update(in)
				refused := highest.Less(in) && in.Wall > manual.Now()+2*offset
				if refused != errors.Is(err, ErrTooFarAhead) || (err != nil && !refused) {
					t.Fatalf("update to %s at %d, highest %s: %v", in, manual.Now(), highest, err)
				}
				if err == nil {
					highest = Max(highest, in)
				}
			},
			"ahead": func(t *rapid.T) {
				in := Timestamp{
					Wall: max(
						0,
						manual.Now()+rapid.Int64Range(-3*offset, 3*offset).Draw(t, "ahead"),
					),
				}
				ahead, want := in.Wall-manual.Now(), time.Duration(0)
				if ahead > offset && ahead <= 2*offset && highest.Less(in) {
					want = time.Duration(ahead - offset)
				}
				if got := c.Delay(in); got != want {
					t.Fatalf(
						"%s has to wait %v at %d, highest %s; want %v",
						in,
						got,
						manual.Now(),
						highest,
						want,
					)
				}
			},
			"bounds": func(t *rapid.T) {
				earliest, latest := c.Bounds()
				if earliest != manual.Now()-offset || latest != manual.Now()+offset ||
					c.Physical() != manual.Now() {
					t.Fatalf("bounds [%d, %d] at %d", earliest, latest, manual.Now())
				}
			},
		})
	})
}

func TestUpdateAtTheEndOfTime(t *testing.T) {
	c := NewClock(NewManual(5), nil)
	if err := c.Update(MaxTimestamp); !errors.Is(err, ErrTooFarAhead) {
		t.Fatal(err)
	}
	if got := c.Now(); got != (Timestamp{Wall: 5}) {
		t.Fatalf("a refused update changed the clock: %s", got)
	}
}

func TestClockConcurrently(t *testing.T) {
	manual := NewManual(1)
	c := NewClock(manual, FixedBound(time.Hour))
	const workers, each = 8, 2000
	all := make([][]Timestamp, workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for i := range each {
				switch i % 5 {
				case 0:
					manual.Set(int64(i * (w + 1) % 1000))
				case 1:
					if err := c.Update(Timestamp{Wall: int64(i)}); err != nil {
						t.Error(err)
					}
				}
				now := c.Now()
				if n := len(all[w]); n > 0 && !all[w][n-1].Less(now) {
					t.Errorf("%s after %s", now, all[w][n-1])
				}
				all[w] = append(all[w], now)
			}
		})
	}
	wg.Wait()
	seen := map[Timestamp]bool{}
	for _, list := range all {
		for _, ts := range list {
			if seen[ts] {
				t.Fatalf("%s was given twice", ts)
			}
			seen[ts] = true
		}
	}
}

func TestBounds(t *testing.T) {
	if c := NewClock(nil, nil); c.MaxOffset() != DefaultMaxOffset ||
		c.MaxError() != DefaultMaxOffset {
		t.Errorf("defaults: %s, %s", c.MaxOffset(), c.MaxError())
	}
	if c := NewClock(nil, FixedBound(time.Second)); c.MaxOffset() != time.Second {
		t.Errorf("fixed: %s", c.MaxOffset())
	}
	reading, readable := kernelReading{maxErrorMicros: 1500, synchronised: true}, true
	bound := &kernelBound{
		fallback: 250 * time.Millisecond,
		read:     func() (kernelReading, bool) { return reading, readable },
	}
	c := NewClock(NewManual(1e9), bound)
	check := func(what string, want time.Duration) {
		t.Helper()
		if got := c.MaxError(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
		earliest, latest := c.Bounds()
		if earliest != 1e9-int64(want) || latest != 1e9+int64(want) {
			t.Errorf("%s: bounds [%d, %d]", what, earliest, latest)
		}
		if c.MaxOffset() != 250*time.Millisecond {
			t.Errorf("%s: maximum offset %s", what, c.MaxOffset())
		}
	}
	check("synchronised", 1500*time.Microsecond)
	reading.synchronised = false
	check("not synchronised", 250*time.Millisecond)
	reading = kernelReading{maxErrorMicros: 16_000_000, synchronised: true}
	check("wider than promised", 250*time.Millisecond)
	reading = kernelReading{maxErrorMicros: math.MaxInt64, synchronised: true}
	check("nonsense", 250*time.Millisecond)
	reading = kernelReading{maxErrorMicros: -1, synchronised: true}
	check("negative", 250*time.Millisecond)
	reading, readable = kernelReading{maxErrorMicros: 10, synchronised: true}, false
	check("unreadable", 250*time.Millisecond)
}

// TestWaitsKeepTheOrderOfRealTime: clocks that know how far each of them is from true time, and are
// no further apart than promised. Of two commits that wait the one that is requested when the other
// is known gets the later timestamp; what one server gives is no further ahead of another's clock
// than MaxAhead; and that takes in what it gives when it begins to lead.
func TestWaitsKeepTheOrderOfRealTime(t *testing.T) {
	const offset = 1000 // microseconds, as all that is drawn
	rapid.Check(t, func(t *rapid.T) {
		slowest := rapid.Int64Range(-offset, 0).Draw(t, "slowest")
		var physical [3]*Manual
		var clocks [3]*Clock
		for i := range clocks {
			off := rapid.Int64Range(slowest, slowest+offset).Draw(t, "off")
			reading := kernelReading{
				maxErrorMicros: rapid.Int64Range(max(off, -off), 2*offset).Draw(t, "error"),
				synchronised:   rapid.Bool().Draw(t, "synchronised"),
			}
			physical[i] = NewManual(1e9 + off*1e3)
			clocks[i] = NewClock(
				physical[i],
				&kernelBound{
					fallback: offset * time.Microsecond,
					read:     func() (kernelReading, bool) { return reading, true },
				},
			)
		}
		pass := func(d time.Duration) {
			for _, p := range physical {
				p.Advance(d)
			}
		}
		first, second, third := clocks[0], clocks[1], clocks[2]

		at := Max(first.Now(), first.WaitFloor())
		if ahead := time.Duration(at.Wall - second.Physical()); ahead > second.MaxAhead() {
			t.Fatalf(
				"the first one's timestamp is %s ahead of the second clock, which counts on %s",
				ahead,
				second.MaxAhead(),
			)
		}
		low := Timestamp{Wall: second.Physical() + int64(second.MaxAhead())}
		if err := third.Update(low); err != nil {
			t.Fatal("a leader's first timestamp:", err)
		}

		earliest, _ := first.Bounds()
		pass(max(0, time.Duration(at.Wall-earliest)) + 1)
		if then := Max(Timestamp{Wall: second.Physical()}, second.WaitFloor()); then.LessEq(at) {
			t.Fatalf(
				"the first one, at %s, was waited for, and then the second one is at %s",
				at,
				then,
			)
		}
	})
	if c := NewClock(nil, wideBound{}); c.MaxError() != DefaultMaxOffset ||
		c.MaxAhead() != 2*DefaultMaxOffset {
		t.Errorf(
			"a bound that is wider than the maximum offset: error %s, %s ahead",
			c.MaxError(),
			c.MaxAhead(),
		)
	}
	if c := NewClock(nil, FixedBound(time.Second)); !c.WaitFloor().IsZero() ||
		c.MaxAhead() != time.Second {
		t.Errorf(
			"a bound on the distance between clocks: floor %s, %s ahead",
			c.WaitFloor(),
			c.MaxAhead(),
		)
	}
	if c := NewClock(nil, KernelBound(time.Second)); c.WaitFloor().IsZero() ||
		c.MaxAhead() != 2*time.Second {
		t.Errorf(
			"a bound on the distance to true time: floor %s, %s ahead",
			c.WaitFloor(),
			c.MaxAhead(),
		)
	}
}

type wideBound struct{}

func (wideBound) MaxError() (int64, bool) { return int64(time.Hour), true }

// TestKernelBound asks the real kernel, whose answer depends on the machine.
func TestKernelBound(t *testing.T) {
	ns, ok := KernelBound(time.Second).MaxError()
	if ok && (ns < 0 || ns > int64(time.Second)) {
		t.Errorf("the kernel's bound is %d ns", ns)
	}
	if !ok && ns != 0 {
		t.Errorf("no bound, but %d ns", ns)
	}
	if _, readable := readKernelClock(); readable != (runtime.GOOS == "linux") {
		t.Logf("kernel clock readable: %v", readable)
	}
}

func BenchmarkNow(b *testing.B) {
	c := NewClock(System(), FixedBound(0))
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			c.Now()
		}
	})
}

func BenchmarkKernelBounds(b *testing.B) {
	c := NewClock(System(), KernelBound(0))
	for b.Loop() {
		c.Bounds()
	}
}

func TestRewind(t *testing.T) {
	physical := NewManual(1000)
	c := NewClock(physical, nil)
	physical.Set(5000)
	wrong := c.Now()
	physical.Set(2000)
	if now := c.Now(); !wrong.Less(now) {
		t.Fatalf("%v after %v: a clock goes back by itself", now, wrong)
	}
	c.Rewind()
	if now := c.Now(); now.Wall != 2000 {
		t.Errorf("after Rewind the clock says %v, want 2000", now)
	}
	physical.Set(3000)
	before := c.Now()
	c.Rewind()
	if now := c.Now(); !before.Less(now) {
		t.Errorf("%v after %v: a clock that is not ahead was rewound", now, before)
	}
}

func BenchmarkSystemMonotonic(b *testing.B) {
	c := SystemMonotonic()
	for b.Loop() {
		c()
	}
}
