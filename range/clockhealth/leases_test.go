package clockhealth

import (
	"testing"
	"time"
)

// Leases end when the clock has moved forward by more than they can spare while one lasts, at once
// or little by little; not when that took longer.
func TestLeasesEnd(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct {
		name  string
		every time.Duration
		moves []time.Duration
		want  bool
	}{
		{"little", 0, []time.Duration{29 * ms}, false},
		{"at once", 0, []time.Duration{30 * ms}, true},
		{"back", 0, []time.Duration{-30 * ms}, true},
		{"a little back", 0, []time.Duration{-29 * ms, -29 * ms}, false},
		{"little by little", 200 * ms, []time.Duration{10 * ms, 10 * ms, 10 * ms}, true},
		{"forward and back", 200 * ms, []time.Duration{20 * ms, -20 * ms, 20 * ms}, true},
		{"over the end of a window", 700 * ms, []time.Duration{1 * ms, 15 * ms, 15 * ms}, true},
		{"slowly", 900 * ms, []time.Duration{14 * ms, 15 * ms, 14 * ms, 15 * ms, 14 * ms}, false},
		{"long ago", 1700 * ms, []time.Duration{29 * ms, 29 * ms, 29 * ms}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			now := int64(time.Hour)
			l := leases{now: func() int64 { return now }, duration: 810 * ms, slack: 30 * ms}
			for _, moved := range test.moves {
				now += int64(test.every)
				l.looked(moved)
			}
			if got := l.from.Load() != 0; got != test.want {
				t.Errorf("leases end: %v, want %v", got, test.want)
			}
		})
	}
	// The bound between clocks, and the margin, whichever is less.
	for _, test := range []struct {
		tick, bound, want time.Duration
	}{{100 * ms, 250 * ms, 30 * ms}, {100 * ms, 80 * ms, 10 * ms}, {10 * ms, 250 * ms, 3 * ms}} {
		promise := 9 * test.tick
		if got := Slack(test.bound, promise, promise*9/10); got != test.want {
			t.Errorf(
				"ticks of %v, a bound of %v: %v, want %v",
				test.tick,
				test.bound,
				got,
				test.want,
			)
		}
	}
}
