package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime/metrics"
	"strconv"
	"time"
)

// clockTick is the unit of /proc/PID/stat.
const clockTick = 10 * time.Millisecond

// processorTime returns the processor time of a process so far. It is 0 on systems other than
// Linux.
func processorTime(pid int) time.Duration {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The second field, which may contain any characters, ends with the last parenthesis. User and
	// system time are the 14th and 15th field.
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(string(fields[11]))
	system, _ := strconv.Atoi(string(fields[12]))
	return time.Duration(user+system) * clockTick
}

// queueing measures how long runnable goroutines of this process have waited for a processor.
type queueing struct{ before []uint64 }

// look returns the 99th percentile of that since the last call.
func (q *queueing) look() time.Duration {
	sample := []metrics.Sample{{Name: "/sched/latencies:seconds"}}
	metrics.Read(sample)
	h := sample[0].Value.Float64Histogram()
	since, all := make([]uint64, len(h.Counts)), uint64(0)
	for i, n := range h.Counts {
		if since[i] = n; q.before != nil {
			since[i] -= q.before[i]
		}
		all += since[i]
	}
	q.before = append(q.before[:0], h.Counts...)
	so := uint64(0)
	for i, n := range since {
		if so += n; so*100 >= all*99 && !math.IsInf(h.Buckets[i+1], 1) {
			return time.Duration(h.Buckets[i+1] * float64(time.Second))
		}
	}
	return 0
}
