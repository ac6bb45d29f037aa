package limit

import (
	"runtime"
	"runtime/metrics"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// scheduling tells whether goroutines have to wait for a processor, from Go's own histogram, and
// whether threads do, from how often the kernel has interrupted them.
type scheduling struct {
	sample []metrics.Sample
	before []uint64
	// preempted and at are what contended has seen last, and when.
	preempted int64
	at        time.Time
}

const (
	// processorWait is how long a goroutine that can run may wait; processors are short when more
	// than one of waitingShare have waited longer.
	processorWait = 4 * time.Millisecond
	waitingShare  = 20
	// preemptions is how many times a second other processes take a processor from this one's threads,
	// for each of its processors, from which on processors are contended.
	preemptions = 500
)

func newScheduling() *scheduling {
	return &scheduling{sample: []metrics.Sample{{Name: "/sched/latencies:seconds"}}}
}

// short says whether goroutines had to wait since the last call. It takes some microseconds.
func (s *scheduling) short() bool {
	metrics.Read(s.sample)
	if s.sample[0].Value.Kind() != metrics.KindFloat64Histogram {
		return false
	}
	h := s.sample[0].Value.Float64Histogram()
	all, late := uint64(0), uint64(0)
	for i, n := range h.Counts {
		if i < len(s.before) {
			n -= s.before[i]
		}
		all += n
		if h.Buckets[i] >= processorWait.Seconds() {
			late += n
		}
	}
	s.before = append(s.before[:0], h.Counts...)
	return late*waitingShare > all
}

// contended says whether other processes wanted the processors that this one was using, since the
// last call: its goroutines need not wait for each other then, and all that they do takes longer.
func (s *scheduling) contended(now time.Time) bool {
	preempted := involuntarySwitches()
	n, took := preempted-s.preempted, now.Sub(s.at)
	first := s.at.IsZero()
	s.preempted, s.at = preempted, now
	return !first && float64(n) > preemptions*took.Seconds()*float64(runtime.GOMAXPROCS(0))
}

// strain is what a Pace is told.
func (s *scheduling) strain(now time.Time) quota.Strain {
	contended := s.contended(now)
	switch {
	case s.short():
		return quota.Short
	case contended:
		return quota.Contended
	}
	return quota.Relaxed
}
