package slowdisk

import (
	"slices"
	"time"
)

const (
	// windows is the number of windows whose median is the figure. Windows without a sync do not
	// count.
	windows = 5
	// fresh is the greatest age of a window that counts.
	fresh = time.Minute
)

// Meter computes one figure from the syncs of a log.
type Meter struct {
	count  uint64
	nanos  int64
	recent []window
}

// window is the mean of the syncs between two calls of Observe.
type window struct {
	at   int64 // the end, on the caller's monotonic clock
	mean time.Duration
}

// Observe is called once a second with the number of syncs since the process started, their total
// time in nanoseconds, and how long one has been under way (0: none is).
func (m *Meter) Observe(now int64, count uint64, nanos int64, underWay time.Duration) {
	syncs, took := count-m.count, time.Duration(nanos-m.nanos)
	m.count, m.nanos = count, nanos
	var mean time.Duration
	switch {
	case syncs > 0:
		mean = took / time.Duration(syncs)
	case underWay >= time.Second:
		mean = underWay
	default:
		return
	}
	if len(m.recent) == windows {
		m.recent = slices.Delete(m.recent, 0, 1)
	}
	m.recent = append(m.recent, window{now, mean})
}

// Sync returns how long a sync takes at present; 0: unknown, because there were too few.
func (m *Meter) Sync(now int64) time.Duration {
	var means []time.Duration
	for _, w := range m.recent {
		if now-w.at <= int64(fresh) {
			means = append(means, w.mean)
		}
	}
	if len(means) < windows {
		return 0
	}
	slices.Sort(means)
	return means[len(means)/2]
}
