package driver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Unknown reports whether a write that ended with this error may have taken effect. Every error but
// ErrOutcomeUnknown promises that the write had no effect and will never have one. The check of the
// history verifies this promise.
func Unknown(err error) bool { return errors.Is(err, kv.ErrOutcomeUnknown) }

// Failed records a write that ended with an error.
func Failed(p history.Pending, err error) {
	if Unknown(err) {
		p.Unknown()
	} else {
		p.Refused()
	}
}

// kindOf returns a short name of an error.
func kindOf(err error) string {
	for _, kind := range []error{kv.ErrOutcomeUnknown, kv.ErrNotFound, kv.ErrOverloaded,
		kv.ErrDiskFull,
		kv.ErrNoQuorum, kv.ErrTimestampTooOld, kv.ErrTimestampInFuture, kv.ErrConflict,
		kv.ErrTransactionAborted, kv.ErrTransactionTooOld, kv.ErrUnavailable,
		kv.ErrClosed} {
		if errors.Is(err, kind) {
			return kind.Error()
		}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "deadline"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	}
	if kind := etcdKind(err); kind != "" {
		return "other: " + kind
	}
	return "other: " + err.Error()
}

// Patience sets the time limit of an operation. Most limits are long enough for an election. Some
// are hardly enough for a round trip.
func Patience(ctx context.Context, random *rand.Rand) (context.Context, context.CancelFunc) {
	return PatienceOf(ctx, random, 0)
}

// PatienceOf is Patience for an operation that needs at least a certain time. It does not extend
// the limits that are hardly enough for a round trip.
func PatienceOf(ctx context.Context, random *rand.Rand, least time.Duration) (context.Context,
	context.CancelFunc) {
	d := max(time.Duration(2+random.IntN(10))*time.Second, least)
	switch random.IntN(20) {
	case 0:
		d = time.Duration(1+random.IntN(5)) * time.Millisecond
	case 1:
		d = time.Duration(50+random.IntN(500)) * time.Millisecond
	}
	return context.WithTimeout(ctx, d)
}

// IgnoreNotFound returns the error of a read for which the absence of a key is a valid answer.
func IgnoreNotFound(err error) error {
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}
