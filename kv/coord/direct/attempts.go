package direct

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

// Attempts records the attempts past gRPC of the calls of a context. When a call's time is over,
// the etcd client replaces the call's error by the context's error, which does not say whether
// anything was sent.
type Attempts struct {
	// unsent counts the failed attempts that certainly were not sent; failed counts all other
	// failed attempts.
	unsent, failed atomic.Int32
}

// attemptsKey is the context key of *Attempts.
type attemptsKey struct{}

// NoteAttempts returns a context whose attempts are recorded in the returned Attempts.
func NoteAttempts(ctx context.Context) (context.Context, *Attempts) {
	a := &Attempts{}
	return context.WithValue(ctx, attemptsKey{}, a), a
}

// Unsent reports whether attempts have failed, all of them before they were sent.
func (a *Attempts) Unsent() bool { return a.unsent.Load() > 0 && a.failed.Load() == 0 }

// note records the end of an attempt.
func note(ctx context.Context, err error) {
	a, ok := ctx.Value(attemptsKey{}).(*Attempts)
	switch {
	case !ok || err == nil:
	case errors.Is(err, client.ErrNotSent):
		a.unsent.Add(1)
	default:
		a.failed.Add(1)
	}
}
