package consumer

import (
	"testing"
	"time"
)

// TestTimesOfLooks: looks that are far apart, or of different leaderships, do not add up.
func TestTimesOfLooks(t *testing.T) {
	var o Overdue
	see := func(term uint64, at time.Duration, beyond bool) (since time.Duration) {
		l := o.Look(term, int64(at))
		if beyond {
			since = l.Since([]byte("a"))
		}
		l.Done()
		return since
	}
	for _, x := range []struct {
		term   uint64
		at     time.Duration
		beyond bool
		want   time.Duration
	}{
		{1, 0, true, 0},
		{1, 10 * time.Second, true, 10 * time.Second},
		{1, 10*time.Second + LookGap, true, 10*time.Second + LookGap},
		{1, 11*time.Second + 2*LookGap, true, 0},
		{1, 12*time.Second + 2*LookGap, true, time.Second},
		{2, 13*time.Second + 2*LookGap, true, 0},
		{2, 14*time.Second + 2*LookGap, false, 0},
		{2, 15*time.Second + 2*LookGap, true, 0},
	} {
		if since := see(x.term, x.at, x.beyond); since != x.want {
			t.Errorf("at %s of term %d: %s, want %s", x.at, x.term, since, x.want)
		}
	}
}

// TestMajority: the time is what a majority of the nodes shows, at least.
func TestMajority(t *testing.T) {
	const unknown = -1
	for name, x := range map[string]struct {
		told  []int64
		alive int
		want  int64
	}{
		"none":                  {nil, 0, unknown},
		"one":                   {[]int64{5}, 1, 5},
		"one of two":            {[]int64{5}, 2, unknown},
		"two":                   {[]int64{5, 9}, 2, 5},
		"two of three":          {[]int64{9, 7}, 3, 7},
		"one ahead, one behind": {[]int64{1 << 60, 5, 1}, 3, 5},
		"four":                  {[]int64{4, 3, 2, 1}, 4, 2},
	} {
		ahead, ok := Majority(x.told, x.alive)
		if ok != (x.want != unknown) || ok && ahead != x.want {
			t.Errorf("%s: %d, %v", name, ahead, ok)
		}
	}
}

// TestTimes: without a proof the clock counts, and what is proven counts before it.
func TestTimes(t *testing.T) {
	wall, proven := time.Unix(9, 0), time.Unix(20, 0)
	for _, x := range []struct {
		now            Times
		likely, latest time.Time
	}{
		{Times{Wall: wall}, wall, wall},
		{Times{Wall: wall, Proven: proven}, proven, proven},
		{Times{Wall: proven, Proven: wall}, wall, proven},
	} {
		if x.now.Likely() != x.likely || x.now.Latest() != x.latest {
			t.Errorf("%v: likely %v, at most %v", x.now, x.now.Likely(), x.now.Latest())
		}
	}
}

// TestAhead: a clock that is not trusted, or shows no time, is ahead of nothing.
func TestAhead(t *testing.T) {
	for _, clock := range []uint64{0, 1 << 63, 1<<64 - 1} {
		if ahead := Ahead(clock, 0); ahead != nil {
			t.Errorf("a clock that shows %d is %d ahead", clock, *ahead)
		}
	}
	if ahead := Ahead(12, 5); ahead == nil || *ahead != 7 {
		t.Errorf("a clock that shows 12 at 5 is %v ahead", ahead)
	}
}
