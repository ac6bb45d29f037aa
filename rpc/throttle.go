package rpc

import (
	"context"
	"sync"
	"time"
)

// throttle spreads bytes over time: a bucket that holds a tenth of a second's worth.
type throttle struct {
	perSecond int64

	mu struct {
		sync.Mutex
		// free is when the bytes taken so far are paid for.
		free time.Time
	}
}

// newThrottle makes a throttle; 0 is without limit.
func newThrottle(perSecond int64) *throttle { return &throttle{perSecond: perSecond} }

// wait takes n bytes, and waits until they may flow.
func (t *throttle) wait(ctx context.Context, n int) error {
	if t.perSecond <= 0 {
		return ctx.Err()
	}
	now := time.Now()
	t.mu.Lock()
	if earliest := now.Add(-100 * time.Millisecond); t.mu.free.Before(earliest) {
		t.mu.free = earliest
	}
	t.mu.free = t.mu.free.Add(time.Duration(float64(n) / float64(t.perSecond) * float64(time.Second)))
	delay := t.mu.free.Sub(now)
	t.mu.Unlock()
	if delay <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
