package rpc

import (
	"math/rand/v2"
	"time"
)

// backoff is the time after a failure in which nothing is tried again. The zero backoff is over.
type backoff struct {
	failures int
	until    time.Time
}

// failed begins a backoff: base, doubled with each failure in a row, at most limit; with ±25 % of
// jitter.
func (b *backoff) failed(now time.Time, base, limit time.Duration) {
	d := min(base<<min(b.failures, 10), limit)
	d += time.Duration((rand.Float64() - 0.5) / 2 * float64(d))
	b.failures++
	b.until = now.Add(d)
}

func (b *backoff) lasts(now time.Time) bool { return now.Before(b.until) }
