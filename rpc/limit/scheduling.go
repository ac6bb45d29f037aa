package limit

import (
	"runtime/metrics"
	"time"
)

// scheduling tells whether goroutines have to wait for a processor, from Go's own histogram. Its
// zero value is ready. It is for one goroutine at a time.
type scheduling struct {
	sample [1]metrics.Sample
	// before is what the histogram had at the last look.
	before []uint64
}

const (
	// processorWait is how long a goroutine that can run may wait: some times as long as a request
	// takes. Processors are short when more than one of waitingShare have waited longer, which is
	// enough for the 99th percentile to be longer.
	processorWait = 4 * time.Millisecond
	waitingShare  = 20
)

// short says whether goroutines had to wait since the last call. It takes some microseconds.
func (s *scheduling) short() bool {
	s.sample[0].Name = "/sched/latencies:seconds"
	metrics.Read(s.sample[:])
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
