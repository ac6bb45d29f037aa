package availability

import (
	"sync"
	"time"
)

// Gap is a time without an answer.
type Gap struct{ From, To time.Time }

// Length is how long it was.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// Meter watches the answers of some partitions. Its methods are safe for concurrent use.
type Meter struct {
	mu struct {
		sync.Mutex
		begin time.Time
		last  []time.Time // of each partition's latest answer
		asked []time.Time // when what was answered last was asked
		worst []Gap
	}
}

// NewMeter watches n partitions.
func NewMeter(n int) *Meter {
	m := &Meter{}
	m.mu.last, m.mu.asked, m.mu.worst = make([]time.Time, n), make([]time.Time, n), make([]Gap, n)
	return m
}

// Answered takes an answer to a request of a partition.
func (m *Meter) Answered(partition int, asked, answered time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gap := m.gapLocked(partition, answered); gap.Length() > m.mu.worst[partition].Length() {
		m.mu.worst[partition] = gap
	}
	m.mu.last[partition], m.mu.asked[partition] = answered, asked
}

// gapLocked is the gap of a partition that ends now.
func (m *Meter) gapLocked(partition int, now time.Time) Gap {
	from := m.mu.last[partition]
	if from.Before(m.mu.begin) {
		from = m.mu.begin
	}
	if from.After(now) {
		from = now
	}
	return Gap{from, now}
}

// Begin forgets all gaps: what counts from now on begins at now, or later.
func (m *Meter) Begin(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.begin = now
	clear(m.mu.worst)
}

// End is the longest gap of each partition since Begin; one that is going on counts with what it
// has lasted.
func (m *Meter) End(now time.Time) []Gap {
	m.mu.Lock()
	defer m.mu.Unlock()
	gaps := make([]Gap, len(m.mu.worst))
	for i, worst := range m.mu.worst {
		gaps[i] = worst
		if open := m.gapLocked(i, now); open.Length() > worst.Length() {
			gaps[i] = open
		}
	}
	return gaps
}

// Silent lists the partitions that have answered nothing that was asked at t or later.
func (m *Meter) Silent(t time.Time) []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var silent []int
	for i, asked := range m.mu.asked {
		if asked.Before(t) {
			silent = append(silent, i)
		}
	}
	return silent
}
