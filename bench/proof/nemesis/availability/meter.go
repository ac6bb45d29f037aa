package availability

import (
	"sync"
	"time"
)

// Gap is a time without an answer.
type Gap struct{ From, To time.Time }

// Length returns the duration of the gap.
func (g Gap) Length() time.Duration { return g.To.Sub(g.From) }

// Meter watches the answers of partitions. Its methods are safe for concurrent use.
type Meter struct {
	mu struct {
		sync.Mutex
		begin time.Time
		last  []time.Time // of each partition's latest answer
		asked []time.Time // when the request of that answer was sent
		worst []Gap
	}
}

// NewMeter watches n partitions.
func NewMeter(n int) *Meter {
	m := &Meter{}
	m.mu.last, m.mu.asked, m.mu.worst = make([]time.Time, n), make([]time.Time, n), make([]Gap, n)
	return m
}

// Answered records an answer to a request to a partition.
func (m *Meter) Answered(partition int, asked, answered time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if gap := m.gapLocked(partition, answered); gap.Length() > m.mu.worst[partition].Length() {
		m.mu.worst[partition] = gap
	}
	m.mu.last[partition], m.mu.asked[partition] = answered, asked
}

// gapLocked returns the gap of a partition that ends now.
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

// Begin removes all gaps. Gaps that count begin at now or later.
func (m *Meter) Begin(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.begin = now
	clear(m.mu.worst)
}

// End returns the longest gap of each partition since Begin. A gap that has not ended counts with
// its duration so far.
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

// Silent lists the partitions that have not answered any request that was sent at t or later.
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
