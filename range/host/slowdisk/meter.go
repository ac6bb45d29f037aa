package slowdisk

import (
	"slices"
	"time"
)

const (
	// windows is of how many windows a figure is the median. Windows without a sync do not count.
	windows = 5
	// fresh is how old a window may be that counts.
	fresh = time.Minute
)

// Meter makes one figure of the syncs of a log.
type Meter struct {
	count  uint64
	nanos  int64
	recent []window
}

// window is the mean of the syncs between two calls of Observe.
type window struct {
	at   int64 // the end, of the caller's monotonic clock
	mean time.Duration
}

// Observe is called once a second, with how many syncs there were since the process started, how
// long they took together, in nanoseconds, and for how long one has been under way (0: none is).
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

// Sync is how long a sync takes at present; 0: there were too few to say.
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
