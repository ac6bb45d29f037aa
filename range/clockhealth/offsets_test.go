package clockhealth

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
)

// fixture is a Health over a clock that goes exactly with the monotonic one, and both by hand.
type fixture struct {
	*Health
	now  int64
	wall *hlc.Manual
	// all and silent are what Config.Peers returns.
	all, silent int
	// moved is by how much the machine's clock was moved, stood for how long the machine stood
	// still together with its monotonic clock.
	moved, stood time.Duration
}

// trueWall is the right time.
func (f *fixture) trueWall() int64 { return 1e18 + f.now - int64(time.Hour) + int64(f.stood) }

const testLimit = 250 * time.Millisecond

func newFixture() *fixture {
	f := &fixture{now: int64(time.Hour), wall: hlc.NewManual(1e18)}
	now := func() int64 { return f.now }
	f.Health = New(Config{
		Clock: hlc.NewClock(
			hlc.NewSteady(f.wall, now, testLimit),
			hlc.FixedBound(testLimit),
		), Now: now,
		LeaseDuration:   810 * time.Millisecond,
		LeaseSlack:      Slack(testLimit, 900*time.Millisecond, 810*time.Millisecond),
		ElectionTimeout: time.Second,
		Peers:           func() (int, int) { return f.all, f.silent },
	})
	return f
}

// pass lets time go on, on all clocks.
func (f *fixture) pass(d time.Duration) {
	f.now += int64(d)
	f.wall.Advance(d)
}

// hear takes a ping of a peer whose clock is ahead by offset, late by delay.
func (f *fixture) hear(peer uint64, offset, delay time.Duration) {
	f.Heard(peer, uint64(f.wall.Now()+int64(offset)-int64(delay)))
}

// pings plays ten pings a second from each peer for some seconds, with offsets and delays, and
// checks once a second.
func (f *fixture) pings(seconds int, offset, delay map[uint64]time.Duration) {
	for range seconds {
		for range 10 {
			f.pass(100 * time.Millisecond)
			for id, o := range offset {
				f.hear(id, o, delay[id])
			}
		}
		f.Check()
	}
}

// outvoted says whether the checks have found against the clock.
func (f *fixture) outvoted() bool {
	s, _ := f.State()
	return s == Outvoted
}

func TestOffsetIsNotDelay(t *testing.T) {
	for _, test := range []struct {
		name   string
		offset map[uint64]time.Duration
		delay  map[uint64]time.Duration
		bad    bool
	}{
		{"all agree", map[uint64]time.Duration{2: time.Millisecond, 3: -time.Millisecond}, nil,
			false},
		{"one of two peers is off", map[uint64]time.Duration{2: time.Second, 3: 0}, nil, false},
		{"both are ahead", map[uint64]time.Duration{2: time.Second, 3: time.Second}, nil, true},
		{"both are behind", map[uint64]time.Duration{2: -time.Second, 3: -time.Second}, nil, true},
		{"two of four", map[uint64]time.Duration{2: time.Second, 3: time.Second, 4: 0, 5: 0}, nil,
			false},
		{"three of four", map[uint64]time.Duration{2: time.Second, 3: time.Second, 4: -time.Second,
			5: 0}, nil, true},
		{"within the limit", map[uint64]time.Duration{2: 200 * time.Millisecond,
			3: -200 * time.Millisecond}, nil, false},
		{"behind one of two", map[uint64]time.Duration{2: 200 * time.Millisecond,
			3: 400 * time.Millisecond}, nil, true},
		{"ahead of one of two", map[uint64]time.Duration{2: -200 * time.Millisecond,
			3: -400 * time.Millisecond}, nil, false},
		{"slow ways to two that are behind",
			map[uint64]time.Duration{2: -100 * time.Millisecond, 3: -240 * time.Millisecond},
			map[uint64]time.Duration{2: 50 * time.Millisecond, 3: 50 * time.Millisecond}, false},
		{"between two that disagree",
			map[uint64]time.Duration{2: 200 * time.Millisecond, 3: -200 * time.Millisecond}, nil,
			false},
		{"behind one of four", map[uint64]time.Duration{2: 200 * time.Millisecond,
			3: 200 * time.Millisecond, 4: 200 * time.Millisecond,
			5: 400 * time.Millisecond}, nil, true},
		{"behind one that is alone",
			map[uint64]time.Duration{2: 200 * time.Millisecond, 3: 200 * time.Millisecond,
				4: 200 * time.Millisecond, 5: 500 * time.Millisecond}, nil, false},
		{"between others", map[uint64]time.Duration{2: 200 * time.Millisecond,
			3: -200 * time.Millisecond, 4: time.Second}, nil, false},
		{"slow ways to four, two of them slower", map[uint64]time.Duration{2: 0, 3: 0, 4: 0, 5: 0},
			map[uint64]time.Duration{2: 200 * time.Millisecond, 3: 200 * time.Millisecond,
				4: 300 * time.Millisecond, 5: 300 * time.Millisecond}, false},
		{"a little delay", map[uint64]time.Duration{2: 0, 3: 0},
			map[uint64]time.Duration{2: 200 * time.Millisecond, 3: 200 * time.Millisecond}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newFixture()
			s.pings(10, test.offset, test.delay)
			if s.outvoted() != test.bad {
				t.Errorf("unhealthy %v, want %v; offsets %v", s.outvoted(), test.bad, s.Offsets())
			}
		})
	}
}

// Whatever the clocks show: of two that are further apart than the limit not both go with the
// others, one does if any is near a majority, and all are undisputed if all are within the
// limit of each other, as is a majority that is if no other is near any of it. Delays, by which
// others look slow, do not stop a clock that is near a majority all the same.
func TestConsensus(t *testing.T) {
	const limit = 250
	rapid.Check(t, func(t *rapid.T) {
		clocks := rapid.SliceOfN(rapid.OneOf(rapid.Int64Range(-400, 400),
			rapid.Int64Range(-mostOffset/2, mostOffset/2)), 1, 9).
			Draw(t, "clocks")
		found, late := make([]consensus, len(clocks)), make([]consensus, len(clocks))
		nearMost := make([]bool, len(clocks)) // also by what is measured late
		for i, own := range clocks {
			seen, delayed, agree := []int64{}, []int64{}, 0
			for j, c := range clocks {
				seen = append(seen, c-own)
				delay := int64(0)
				if j != i {
					delay = rapid.Int64Range(0, 300).Draw(t, "delay")
				}
				delayed = append(delayed, c-own-delay)
				if c-own-delay <= limit && own+delay-c <= limit {
					agree++
				}
			}
			nearMost[i] = agree > len(clocks)/2
			found[i], late[i] = consensusOf(seen, limit), consensusOf(delayed, limit)
		}
		near := func(a, b int64) bool { return a-b <= limit && b-a <= limit }
		all, anyNear, goesOn := true, false, false
		for i, a := range clocks {
			goesOn = goesOn || found[i] != against
			size, apart, behind := 0, true, false
			for j, b := range clocks {
				if !near(a, b) {
					all = false
					behind = behind || b > a
					if found[i] != against && found[j] != against {
						t.Fatalf("%d and %d of %v both go with the others", a, b, clocks)
					}
					continue
				}
				size++
				for _, c := range clocks {
					apart = apart && near(b, c) == near(a, c)
				}
			}
			anyNear = anyNear || size > len(clocks)/2
			want := against
			if size > len(clocks)/2 {
				want = undisputed
			}
			if apart && found[i] != want { // all near it are near the same ones
				t.Fatalf("%d of %v, in a group of %d: %v", a, clocks, size, found[i])
			}
			if nearMost[i] && !behind && late[i] == against {
				t.Fatalf(
					"%d of %v is behind none, near a majority in spite of delays, and does not "+
						"go on",
					a,
					clocks,
				)
			}
		}
		if anyNear != goesOn {
			t.Fatalf("of %v one is near a majority: %v; goes on: %v", clocks, anyNear, goesOn)
		}
		for i := range clocks {
			if all && found[i] != undisputed {
				t.Fatalf("%d of %v: %v", clocks[i], clocks, found[i])
			}
		}
	})
}

func TestConsensusOfSome(t *testing.T) {
	for _, test := range []struct {
		clocks []int64
		want   []consensus
	}{
		{[]int64{-200, 0, 200}, []consensus{against, undisputed, disputed}},
		{[]int64{-339, -120, 80}, []consensus{against, undisputed, disputed}},
		{[]int64{-200, 0, 0, 0, 200},
			[]consensus{against, undisputed, undisputed, undisputed, disputed}},
		{[]int64{-200, 0, 100, 200, 200},
			[]consensus{against, undisputed, undisputed, undisputed, undisputed}},
		{[]int64{-200, -200, -200, 0, 200},
			[]consensus{undisputed, undisputed, undisputed, undisputed, against}},
		{[]int64{-60, -60, -40, -40, 200},
			[]consensus{against, against, undisputed, undisputed, disputed}},
		{[]int64{-60, -60, -40, -40, 220},
			[]consensus{undisputed, undisputed, undisputed, undisputed, against}},
		{[]int64{0, 300}, []consensus{against, against}},
		{[]int64{-300, 0, 300}, []consensus{against, against, against}},
		{[]int64{7}, []consensus{undisputed}},
	} {
		for i, own := range test.clocks {
			var seen []int64
			for _, c := range test.clocks {
				seen = append(seen, c-own)
			}
			if got := consensusOf(seen, 250); got != test.want[i] {
				t.Errorf("%d of %v: %v, want %v", own, test.clocks, got, test.want[i])
			}
		}
	}
}

// A step of this node's clock changes what is known of the others by as much, at once; and is not
// taken if the clock does not fit then.
func TestOffsetsAfterAStep(t *testing.T) {
	for _, test := range []struct {
		name   string
		step   time.Duration
		others map[uint64]time.Duration
		taken  bool
	}{
		{"back, and away from one", -219 * time.Millisecond,
			map[uint64]time.Duration{2: 0, 3: 200 * time.Millisecond}, false},
		{"forward, and away from one", 219 * time.Millisecond,
			map[uint64]time.Duration{2: 0, 3: -200 * time.Millisecond}, false},
		{"back, and still near", -219 * time.Millisecond,
			map[uint64]time.Duration{2: 0, 3: 20 * time.Millisecond}, true},
		{"forward, and nearer", 219 * time.Millisecond,
			map[uint64]time.Duration{2: 100 * time.Millisecond, 3: 240 * time.Millisecond}, true},
		{"less than a step at the end", -31 * time.Millisecond,
			map[uint64]time.Duration{2: 0, 3: 250 * time.Millisecond}, true},
		{"a step at the end", -32 * time.Millisecond,
			map[uint64]time.Duration{2: 0, 3: 250 * time.Millisecond}, false},
		{"alone", -219 * time.Millisecond, nil, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newFixture()
			s.all = len(test.others)
			start, steady := s.now, s.config.Clock.Steady()
			hear := func(n int) {
				for range n {
					s.pass(100 * time.Millisecond)
					for id, o := range test.others {
						s.Heard(id, uint64(1e18+s.now-start+int64(o)))
					}
				}
			}
			hear(30) // a window, and half of the next
			before := steady.Now()
			s.wall.Advance(test.step)
			hear(1) // after the step, and before it is noticed
			if c := s.Look(); c.Jumped == test.taken || (c.Jumped && c.Moved != test.step) {
				t.Errorf("%+v", c)
			}
			if got, want := steady.Now()-before == int64(100*time.Millisecond+test.step),
				test.taken; got != want {
				t.Errorf("taken: %v, want %v", got, want)
			}
			check := func(when string) {
				t.Helper()
				known := s.Offsets()
				for id, o := range test.others {
					if got := known[id]; got != o-test.step {
						t.Errorf("%s peer %d is %v off, want %v", when, id, got, o-test.step)
					}
				}
			}
			if test.taken {
				check("at once")
			} else if n := len(s.mu.offsets.peers); n != 0 {
				t.Errorf("%d peers are measured with the clock before", n)
			}
			hear(10)
			check("later")
		})
	}
}

// A clock that comes back within the bound, ahead of another, waits until that one has forgotten
// what it measured before, and stopped. A clock that is behind none and ahead of none does not
// wait.
func TestOffsetsIsOverLaterWhileDisputed(t *testing.T) {
	for name, test := range map[string]struct {
		third   time.Duration
		seconds int
	}{"disputed": {-300 * time.Millisecond,
		int(disputedFor / CheckPeriod)}, "undisputed": {-200 * time.Millisecond, checks}} {
		t.Run(name, func(t *testing.T) {
			s := newFixture()
			s.pings(10, map[uint64]time.Duration{2: -time.Second, 3: -time.Second}, nil)
			if !s.outvoted() {
				t.Fatal("healthy, a second ahead of both")
			}
			back := map[uint64]time.Duration{2: -150 * time.Millisecond, 3: test.third}
			s.pings(test.seconds-1, back, nil)
			if !s.outvoted() {
				t.Errorf("believed after %d checks", test.seconds-1)
			}
			s.pings(1, back, nil)
			if s.outvoted() {
				t.Errorf("not believed after %d checks", test.seconds)
			}
		})
	}
}

// A disputed clock ends a quarantine when it has been disputed for long enough without a break.
func TestQuarantineIsSettled(t *testing.T) {
	d := quarantine{patience: disputedFor, since: math.MaxInt64}
	at := func(seconds int64, a consensus, want bool) {
		t.Helper()
		if got := d.settled(a, seconds*int64(time.Second)); got != want {
			t.Errorf("at %d s, with %d: %v", seconds, a, got)
		}
	}
	at(1, against, false)
	at(2, undisputed, true)
	at(3, disputed, false)
	at(9, disputed, false)
	at(10, disputed, true)
	at(11, against, false)
	at(12, disputed, false)
	at(18, disputed, false)
	at(19, disputed, true)
}

// One prompt ping in two seconds is enough to tell a slow network from a slow clock.
func TestOffsetsIgnoresDelayedPings(t *testing.T) {
	s := newFixture()
	for i := range 200 {
		s.pass(100 * time.Millisecond)
		delay := 800 * time.Millisecond
		if i%15 == 0 {
			delay = 0
		}
		for _, id := range []uint64{2, 3} {
			s.hear(id, 0, delay)
		}
		if i%10 == 9 {
			s.Check()
		}
		if s.outvoted() {
			t.Fatalf("unhealthy at ping %d; offsets %v", i, s.Offsets())
		}
	}
}

// A process that stood still finds old pings in its buffers, which are no measure of anything.
func TestOffsetsAfterAPause(t *testing.T) {
	s := newFixture()
	good := map[uint64]time.Duration{2: 0, 3: 0}
	s.pings(10, good, nil)
	sent := s.wall.Now()
	s.pass(15 * time.Second)
	for i := range 150 {
		for _, id := range []uint64{2, 3} {
			s.Heard(id, uint64(sent+int64(i)*int64(100*time.Millisecond)))
		}
	}
	s.Check()
	s.pings(10, good, nil)
	if s.outvoted() {
		t.Error("unhealthy after a pause")
	}
}

// Silence proves nothing, in either direction.
func TestOffsetsInSilence(t *testing.T) {
	s := newFixture()
	s.pings(10, map[uint64]time.Duration{2: time.Minute, 3: time.Minute}, nil)
	s.pings(60, nil, nil)
	if !s.outvoted() {
		t.Error("a wrong clock became right by silence")
	}
	if n := len(s.mu.offsets.peers); n != 0 {
		t.Errorf("%d silent peers are remembered", n)
	}
	s.pings(10, map[uint64]time.Duration{2: 0, 3: 0}, nil)
	if s.outvoted() {
		t.Error("still unhealthy")
	}
}

// A process that believes its clock whatever that does shows right clocks of its peers when its own
// has moved and is right again: no peer is measured against the clock as it was before.
func TestClocksAfterABelievedMove(t *testing.T) {
	for _, by := range []time.Duration{-1700 * time.Millisecond, 1700 * time.Millisecond,
		-200 * time.Millisecond, 200 * time.Millisecond} {
		f := newFixture()
		peers := []uint64{2, 3}
		f.all = len(peers)
		right := func(when string) {
			t.Helper()
			if _, clocks := f.Clocks(); len(clocks) > 0 {
				for id, at := range clocks {
					if off := time.Duration(at - f.trueWall()); off > time.Millisecond {
						t.Errorf("by %v, %s: the clock of peer %d is shown %v ahead", by, when, id, off)
					}
				}
			}
		}
		pings := func(n int) {
			for range n {
				f.pass(50 * time.Millisecond)
				f.Believe()
				for _, id := range peers {
					f.Heard(id, uint64(f.trueWall()))
				}
				right("at a ping")
			}
		}
		pings(40)
		for _, move := range []time.Duration{by, -by} {
			f.wall.Advance(move)
			right("before a look")
			f.Believe()
			right("after a look")
			pings(40)
		}
		if _, clocks := f.Clocks(); len(clocks) != len(peers) {
			t.Errorf("by %v: %d clocks are known", by, len(clocks))
		}
	}
}
