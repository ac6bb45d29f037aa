package delays

import (
	"slices"
	"time"
)

const (
	// tickWindow is the length of a window, whose lateness is that of its latest tick. The median
	// is taken of the last tickWindows windows.
	tickWindow  = time.Second
	tickWindows = 9
)

// Ticks measures how late ticks are. The zero value is ready.
type Ticks struct {
	end    int64
	latest time.Duration
	recent []time.Duration
}

// Observe notes one tick: the time now, in nanoseconds of a monotonic clock, and by how much the
// tick was late. It returns true if a window has ended, so that Wait may have changed.
func (t *Ticks) Observe(now int64, late time.Duration) (changed bool) {
	if t.end == 0 {
		t.end = now + int64(tickWindow)
	}
	t.latest = max(t.latest, late)
	if now < t.end {
		return false
	}
	if len(t.recent) == tickWindows {
		t.recent = slices.Delete(t.recent, 0, 1)
	}
	t.recent = append(t.recent, t.latest)
	t.end, t.latest = now+int64(tickWindow), 0
	return true
}

// Wait returns how long the process waits for a processor at present: in half of the last windows,
// a tick was that late, or later. It is 0 until enough ticks were observed.
func (t *Ticks) Wait() time.Duration {
	if len(t.recent) < tickWindows {
		return 0
	}
	sorted := slices.Sorted(slices.Values(t.recent))
	return sorted[len(sorted)/2]
}
