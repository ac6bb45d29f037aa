package driver

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Unknown says whether a write that ended with this error may have taken effect. Any error but
// ErrOutcomeUnknown promises that it has not and never will: that promise is checked too, because
// the history says so.
func Unknown(err error) bool { return errors.Is(err, kv.ErrOutcomeUnknown) }

// Failed records a write that ended with an error.
func Failed(p history.Pending, err error) {
	if Unknown(err) {
		p.Unknown()
	} else {
		p.Refused()
	}
}

// kindOf is a short name of an error.
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

// Patience gives an operation its time: mostly enough for an election, sometimes hardly enough for
// a round trip.
func Patience(ctx context.Context, random *rand.Rand) (context.Context, context.CancelFunc) {
	return PatienceOf(ctx, random, 0)
}

// PatienceOf is Patience for an operation that needs a certain time at least. The time that is
// hardly enough for a round trip stays what it is.
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

// IgnoreNotFound is the error of a read for which absence is an answer like another.
func IgnoreNotFound(err error) error {
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}
