package direct

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/rpc/client"
)

// Attempts notes what became of the attempts at the calls of a context that were past gRPC. etcd's
// client replaces the error of a call whose time is over by that of the context, which does not say
// whether anything was sent.
type Attempts struct {
	// unsent counts the attempts that have failed and certainly were not sent, and failed all others
	// that have failed.
	unsent, failed atomic.Int32
}

// attemptsKey is that of the Attempts of a context.
type attemptsKey struct{}

// NoteAttempts is a context whose attempts are noted.
func NoteAttempts(ctx context.Context) (context.Context, *Attempts) {
	a := &Attempts{}
	return context.WithValue(ctx, attemptsKey{}, a), a
}

// Unsent reports whether attempts have failed, all of them before they were sent.
func (a *Attempts) Unsent() bool { return a.unsent.Load() > 0 && a.failed.Load() == 0 }

// note notes how an attempt has ended.
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
