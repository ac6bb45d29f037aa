package rpc

import (
	"runtime/metrics"
	"time"
)

// scheduling tells from Go's own histogram whether goroutines have to wait for a processor.
type scheduling struct {
	sample []metrics.Sample
	before []uint64
}

const (
	// processorWait is how long a goroutine that can run may wait; processors are short when more
	// than one of waitingShare have waited longer.
	processorWait = 4 * time.Millisecond
	waitingShare  = 20
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
