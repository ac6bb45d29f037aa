package conn

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// ParallelRequests bounds the requests that one call has in flight.
const ParallelRequests = 64

// LockSlack is the time before the deadline at which a node stops waiting for a lock, so that its
// answer still arrives.
const LockSlack = 50 * time.Millisecond

// InParallel calls f for 0 to n-1, at most limit of them at a time, and returns the first error,
// which ends the context of the others.
func InParallel(ctx context.Context, n, limit int, f func(ctx context.Context, i int) error) error {
	switch n {
	case 0:
		return nil
	case 1:
		return f(ctx, 0)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var workers sync.WaitGroup
	for range min(n, limit) {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && failed.Load() == nil; i = next.Add(1) - 1 {
				if err := f(ctx, int(i)); err != nil && failed.CompareAndSwap(nil, &err) {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	if first := failed.Load(); first != nil {
		return *first
	}
	return nil
}
