package backoff

import (
	"context"
	"time"
)

// Backoff says how long to wait between attempts after one class of failure. The zero value does
// not wait.
type Backoff struct {
	// Name is the class of failure, for metrics and messages.
	Name string
	// Base is the first wait; each later one is twice as long.
	Base time.Duration
	// Cap is the longest wait.
	Cap time.Duration
	// Jitter is the part of the wait that is random, 0 to 1: 0.5 waits between half of the step and
	// the whole of it.
	Jitter float64
	// AtOnce is how many attempts follow without any wait.
	AtOnce int
	// Budget bounds the total time of one request in this class; 0: only its context does.
	Budget time.Duration
}

// Delay returns the wait after failure number n, counted from 0. random is uniform in [0, 1).
func (b Backoff) Delay(n int, random float64) time.Duration {
	return Step(n-b.AtOnce, b.Base, b.Cap, b.Jitter, random)
}

// Step returns the wait after failure number n in a row, counted from 0: base, doubled n times, at
// most limit. The part jitter of it, 0 to 1, is random: with 0.5 the wait is between half and the
// whole. random is uniform in [0, 1). A negative n does not wait.
func Step(n int, base, limit time.Duration, jitter, random float64) time.Duration {
	if n < 0 || base <= 0 {
		return 0
	}
	step := limit
	if n < 32 {
		if d := base << n; d > 0 && d < limit {
			step = d
		}
	}
	return step - time.Duration(float64(step)*jitter*random)
}

// Sleep waits for a time, or returns the error of the context if that ends before.
func Sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
