// Package backoff says how long to wait between attempts that fail.
package backoff

import "time"

// Backoff says how long to wait between attempts after one class of failure. The zero value does
// not wait.
type Backoff struct {
	// Name is the class, for metrics and messages.
	Name string
	// Base is the first wait; each further one is twice as long.
	Base time.Duration
	// Cap is the longest wait.
	Cap time.Duration
	// Jitter is the part of the wait that is random, 0 to 1: 0.5 waits between half of the step and
	// the whole of it.
	Jitter float64
	// AtOnce is how many attempts go without any wait before the first one waits.
	AtOnce int
	// Budget is the total time of one request in this class, after which it gives up; 0 is until
	// its context ends.
	Budget time.Duration
}

// Delay is the wait before the attempt that follows failure number n, counted from 0. random is
// uniform in [0, 1).
func (b Backoff) Delay(n int, random float64) time.Duration {
	n -= b.AtOnce
	if n < 0 || b.Base <= 0 {
		return 0
	}
	step := b.Cap
	if n < 32 {
		if d := b.Base << n; d > 0 && d < b.Cap {
			step = d
		}
	}
	return step - time.Duration(float64(step)*b.Jitter*random)
}
