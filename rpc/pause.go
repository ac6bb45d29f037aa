package rpc

import (
	"math/rand/v2"
	"time"
)

// pause is the time after a failure in which nothing is tried again. The zero pause is over.
type pause struct {
	failures int
	until    time.Time
}

// failed begins a pause: base, doubled with each failure in a row, at most limit; with ±25 % of
// jitter.
func (p *pause) failed(now time.Time, base, limit time.Duration) {
	d := min(base<<min(p.failures, 10), limit)
	d += time.Duration((rand.Float64() - 0.5) / 2 * float64(d))
	p.failures++
	p.until = now.Add(d)
}

func (p *pause) lasts(now time.Time) bool { return now.Before(p.until) }
