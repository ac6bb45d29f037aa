package loadmeter

import (
	"math"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/machine"
)

// TestLoadMeter has a meter follow a load that changes, and checks what is reported and when.
func TestLoadMeter(t *testing.T) {
	var m Meter
	now := time.Unix(1000, 0)
	// step lets 3 s pass in which the leader works for a part of a processor.
	step := func(led, applying float64, leading bool) bool {
		m.Led.Add(int64(led * 3e9))
		m.Applying.Add(int64(applying * 3e9))
		now = now.Add(3 * time.Second)
		return m.Sample(now, leading, 1, machine.Work{})
	}
	near := func(what string, micro uint64, cores float64) {
		t.Helper()
		if got := float64(micro) / 1e6; math.Abs(got-cores) > 0.1*cores+0.001 {
			t.Errorf("%s is %.3f, want %.3f", what, got, cores)
		}
	}
	m.Sample(now, true, 1, machine.Work{})
	if !step(0.2, 0.1, true) {
		t.Error("the first figure was not reported")
	}
	near("the leader's load after 3 s", m.LeaderMicro.Load(), 0.3)
	near("a follower's", m.followerMicro.Load(), 0.1)
	reports := 0
	for range 100 {
		if step(0.2, 0.1, true) {
			reports++
		}
	}
	if reports != 1 {
		t.Errorf("an even load was reported %d times, want once: when it was measured for long enough",
			reports)
	}
	if seconds := m.measuredSeconds.Load(); seconds != 303 {
		t.Errorf("measured for %d s, want 303", seconds)
	}
	for range 100 {
		step(0.6, 0.1, true)
	}
	near("the leader's load, higher for five minutes", m.LeaderMicro.Load(), 0.7)
	step(0, 0.1, false)
	step(0, 0.1, true)
	step(0.1, 0.1, true)
	near("the load of a new leadership", m.LeaderMicro.Load(), 0.2)
	if seconds := m.measuredSeconds.Load(); seconds != 3 {
		t.Errorf("measured for %d s, want 3: the leadership is new", seconds)
	}
}
