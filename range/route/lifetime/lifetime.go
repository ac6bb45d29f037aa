// Package lifetime has the time from the making of a sender to its end: the goroutines that its end
// waits for, and the waits that end with it.
package lifetime

import (
	"context"
	"errors"
	"sync"
	"time"
)

// ErrClosed is what a call gets after End.
var ErrClosed = errors.New("the client is closed")

// Lifetime ends once. Its methods may be called from any goroutine. Make one with New.
type Lifetime struct {
	ctx    context.Context
	cancel context.CancelFunc
	done   chan struct{}

	// mu holds back End while a goroutine is being added.
	mu         sync.Mutex
	ended      bool
	goroutines sync.WaitGroup
}

// New begins a Lifetime.
func New() *Lifetime {
	l := &Lifetime{done: make(chan struct{})}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// Context ends with the Lifetime.
func (l *Lifetime) Context() context.Context { return l.ctx }

// Done is closed when the Lifetime ends.
func (l *Lifetime) Done() <-chan struct{} { return l.done }

// Ended reports whether it has ended.
func (l *Lifetime) Ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// Go runs f in a goroutine that Wait waits for; false after the end.
func (l *Lifetime) Go(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.goroutines.Go(f)
	return true
}

// End ends the Lifetime. first is false if it had ended before.
func (l *Lifetime) End() (first bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ended {
		return false
	}
	l.ended = true
	l.cancel()
	close(l.done)
	return true
}

// Wait waits for the goroutines. Call End first.
func (l *Lifetime) Wait() { l.goroutines.Wait() }

// Pause waits for d, and ends early with the context's error or with ErrClosed.
func (l *Lifetime) Pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		if err := ctx.Err(); err != nil || !l.Ended() {
			return err
		}
		return ErrClosed
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-l.done:
		return ErrClosed
	}
}
