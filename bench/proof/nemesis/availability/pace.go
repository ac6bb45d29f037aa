package availability

import (
	"sync/atomic"
	"time"
)

// Pace counts the answers of some partitions. Its methods are safe for concurrent use.
type Pace struct{ answers []atomic.Int64 }

// Count has the number of answers of each partition at a time.
type Count struct {
	At      time.Time
	Answers []int64
}

// NewPace counts the answers of n partitions.
func NewPace(n int) *Pace { return &Pace{answers: make([]atomic.Int64, n)} }

// Answered records an answer of a partition.
func (p *Pace) Answered(partition int) { p.answers[partition].Add(1) }

// Now is the present count.
func (p *Pace) Now() Count {
	c := Count{At: time.Now(), Answers: make([]int64, len(p.answers))}
	for i := range p.answers {
		c.Answers[i] = p.answers[i].Load()
	}
	return c
}

// Rate returns the number of answers a second that some partitions have given together between two
// counts.
func Rate(from, to Count, partitions []int) float64 {
	sum := int64(0)
	for _, p := range partitions {
		sum += to.Answers[p] - from.Answers[p]
	}
	return float64(sum) / to.At.Sub(from.At).Seconds()
}
