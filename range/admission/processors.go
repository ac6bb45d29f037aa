package admission

import (
	"runtime/metrics"
	"time"
)

// Processors tells whether goroutines have to wait for a processor, from the histogram of the Go
// runtime. It is for one goroutine at a time.
type Processors struct {
	// Wait is how long a goroutine that can run may wait.
	Wait time.Duration

	sample [1]metrics.Sample
	// before is what the histogram had at the last look.
	before []uint64
}

// waitingShare is the number of goroutines of which more than one has to have waited too long:
// enough for the 99th percentile of requests to be longer.
const waitingShare = 20

// Short reports whether goroutines have waited for too long since the last call. It takes some
// microseconds.
func (s *Processors) Short() bool {
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
		if h.Buckets[i] >= s.Wait.Seconds() {
			late += n
		}
	}
	s.before = append(s.before[:0], h.Counts...)
	return late*waitingShare > all
}
