package slowdisk

import (
	"slices"
	"testing"
	"time"
)

const ms = time.Millisecond

// look judges n times, and says after how many the judgement has changed; 0: it has not.
func (j *Judge) lookTimes(n int, own time.Duration, peers ...time.Duration) int {
	for i := range n {
		if j.Look(own, peers) {
			return i + 1
		}
	}
	return 0
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name  string
		own   time.Duration
		peers []time.Duration
		slow  bool
	}{
		{"many times slower", 40 * ms, []time.Duration{ms, 2 * ms}, true},
		{"all equally slow", 40 * ms, []time.Duration{40 * ms, 40 * ms}, false},
		{"one peer is as slow: a quorum is slow anyway", 40 * ms, []time.Duration{ms, 40 * ms}, false},
		{"two of five are slow", 40 * ms, []time.Duration{40 * ms, ms, ms, ms}, true},
		{"three of five are slow", 40 * ms, []time.Duration{40 * ms, 40 * ms, ms, ms}, false},
		{"slower, and fast enough", 9 * ms, []time.Duration{100 * time.Microsecond}, false},
		{"a rotating disk among others", 70 * ms, []time.Duration{10 * ms, 12 * ms}, false},
		{"peers of an earlier version", 40 * ms, []time.Duration{0, 0}, false},
		{"one of an earlier version", 40 * ms, []time.Duration{0, ms}, true},
		{"without peers", 40 * ms, nil, false},
		{"not known", 0, []time.Duration{ms, ms}, false},
	} {
		var j Judge
		if after := j.lookTimes(100, c.own, c.peers...); (after == slowAfter) != c.slow ||
			j.Slow() != c.slow {
			t.Errorf("%s: slow is %v after %d", c.name, j.Slow(), after)
		}
	}
}

// A disk that is slow every other moment goes to and fro ever more seldom.
func TestJudgeIsSteady(t *testing.T) {
	var j Judge
	var waits []int
	for range 8 {
		if j.lookTimes(slowAfter, 40*ms, ms, ms) == 0 {
			t.Fatal("it is not slow")
		}
		if j.lookTimes(5, 7*ms, ms, ms) != 0 || j.lookTimes(wellAfter-1, ms, ms, ms) != 0 ||
			j.lookTimes(1, 7*ms, ms, ms) != 0 {
			t.Fatal("it is well although it was slow a moment ago")
		}
		waits = append(waits, j.lookTimes(10_000, ms, ms, ms))
	}
	if want := []int{20, 40, 80, 160, 320, 600, 600, 600}; !slices.Equal(waits, want) {
		t.Errorf("well again after %v, want %v", waits, want)
	}
	if j.lookTimes(2*wellAfterMost, ms, ms, ms) != 0 || j.lookTimes(slowAfter, 40*ms, ms, ms) == 0 ||
		j.lookTimes(100, ms, ms, ms) != wellAfter {
		t.Error("relapses are not forgotten")
	}
}

// What is not written any more cannot be found to be fast, and is not slow for anybody.
func TestJudgeForgets(t *testing.T) {
	var j Judge
	j.lookTimes(slowAfter, 40*ms, ms, ms)
	if after := j.lookTimes(1000, 0, ms, ms); !(after == wellAfter) || j.Slow() {
		t.Errorf("slow is %v after %d", j.Slow(), after)
	}
}

func TestMeter(t *testing.T) {
	var m Meter
	second := int64(time.Second)
	count, nanos := uint64(0), int64(0)
	step := func(at int64, syncs int, each time.Duration) {
		count += uint64(syncs)
		nanos += int64(syncs) * int64(each)
		m.Observe(at*second, count, nanos, 0)
	}
	for at := range int64(4) {
		step(at, 10, ms)
	}
	if d := m.Sync(4 * second); d != 0 {
		t.Errorf("it tells %v after too short a time", d)
	}
	step(4, 1, 900*ms) // a single slow one
	if d := m.Sync(4 * second); d != ms {
		t.Errorf("it tells %v, want 1 ms", d)
	}
	step(5, 0, 0)
	step(6, 3, 50*ms)
	step(7, 3, 50*ms)
	if d := m.Sync(7 * second); d != 50*ms {
		t.Errorf("it tells %v, want 50 ms", d)
	}
	m.Observe(8*second, count, nanos, 3*time.Second) // it does not end
	m.Observe(9*second, count, nanos, 4*time.Second)
	m.Observe(10*second, count, nanos, 5*time.Second)
	if d := m.Sync(10 * second); d != 3*time.Second {
		t.Errorf("it tells %v, want 3 s", d)
	}
	if d := m.Sync(100 * second); d != 0 {
		t.Errorf("it tells %v of what is long ago", d)
	}
}
