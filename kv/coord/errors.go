package coord

import (
	"context"
	"errors"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// ErrorKind is a kind of errors, for errors.Is. It comes wrapped in an *Error, which has the
// details.
type ErrorKind string

// Error is the kind in a few words.
func (k ErrorKind) Error() string { return string(k) }

// The kinds of errors.
const (
	// ErrSessionEnded: the session has ended, and with it all that was held under it. One of the next
	// three says why.
	ErrSessionEnded ErrorKind = "session ended"
	// ErrSessionClosed: it was closed.
	ErrSessionClosed ErrorKind = "session closed"
	// ErrSessionExpired: the service says that its lease is gone: it ran out, or was revoked.
	ErrSessionExpired ErrorKind = "session expired"
	// ErrSessionUnconfirmed: no renewal was confirmed within the time to live, by this machine's
	// monotonic clock. The service may keep the lease for a little longer.
	ErrSessionUnconfirmed ErrorKind = "session not confirmed in time"
	// ErrLost: what was held is gone although its session goes on: its key was deleted by another
	// client else.
	ErrLost ErrorKind = "lost"
	// ErrReleased: what was held was given back by its holder.
	ErrReleased ErrorKind = "released"
	// ErrLocked: another client has the lock, or is waiting for it.
	ErrLocked ErrorKind = "locked"
	// ErrExists: the key exists.
	ErrExists ErrorKind = "exists"
	// ErrOutcomeUnknown: the call ended before the outcome of a write was known. It may have been
	// executed, or may yet be.
	ErrOutcomeUnknown ErrorKind = "outcome unknown"
	// ErrFenced: a holder with a higher token has been there.
	ErrFenced ErrorKind = "fenced"
	// ErrOwned: another owner has the key.
	ErrOwned ErrorKind = "owned"
	// ErrClockAhead: another machine's clock is ahead of this one's by more than it may be.
	ErrClockAhead ErrorKind = "clock ahead"
	// ErrInvalidArgument: the call makes no sense; nothing was changed.
	ErrInvalidArgument ErrorKind = "invalid argument"
	// ErrClosed: the client is closed.
	ErrClosed ErrorKind = "client closed"
)

// Error is every error of this package, but for those that the iterating function of a caller
// returns.
type Error struct {
	// Op is the call, such as "lock".
	Op string
	// Name is the name of the lock, election, queue and so on; empty where that does not apply.
	Name string
	// Message says what happened, and what to do.
	Message string

	// wraps are the kinds and the cause, such as the context's error or one of etcd's client.
	wraps []error
}

// Error is one sentence with everything in it.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("coord: " + e.Op)
	if e.Name != "" {
		b.WriteString(" " + e.Name)
	}
	return b.String() + ": " + e.Message
}

// Unwrap are the kinds, and the cause.
func (e *Error) Unwrap() []error { return e.wraps }

// fail makes an error. An error that is one already stays as it is, under the call that was made.
func fail(op, name string, err error, kinds ...error) error {
	if err == nil {
		return nil
	}
	message := err.Error()
	var inner *Error
	if errors.As(err, &inner) {
		message = inner.Message
		kinds = append(kinds, inner.wraps...)
	} else if kind := ErrorKind(""); !errors.As(err, &kind) || string(kind) != message {
		kinds = append(kinds, err)
	}
	return &Error{Op: op, Name: name, Message: message, wraps: kinds}
}

// text is what an error says, without the call that an error of this package names.
func text(err error) string {
	if inner := (*Error)(nil); errors.As(err, &inner) {
		return inner.Message
	}
	return err.Error()
}

// because makes an error of kinds and a message.
func because(message string, kinds ...error) error {
	return &Error{Op: "call", Message: message, wraps: kinds}
}

func invalid(op, name, message string) error {
	return &Error{Op: op, Name: name, Message: message, wraps: []error{ErrInvalidArgument}}
}

// verdict is what an error of a call says of the call.
type verdict uint8

const (
	// refused: it had no effect, and never will.
	refused verdict = iota
	// busy: it had no effect; another attempt may have.
	busy
	// unknown: it may have had an effect, or may yet have.
	unknown
)

// errUnsent is among the kinds of the error of a call that was not sent in its time.
var errUnsent = errors.New("not sent")

// judge says what the error of one attempt means for a write.
func judge(err error) verdict {
	code := codes.Unknown
	var of rpctypes.EtcdError
	switch {
	case errors.Is(err, errUnsent), coordpb.IsNotSent(err), coordpb.IsLeaderless(err),
		coordpb.IsTooMany(err),
		rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner):
		return busy // another server may be able to
	case errors.As(rpctypes.Error(err), &of):
		code = of.Code()
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return unknown
	default:
		code = status.Code(err)
	}
	switch code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Internal, codes.Unknown,
		codes.Aborted:
		return unknown
	}
	return refused
}

// isImporting says whether a server has answered that an import is under way, until whose end it
// answers nothing about keys.
func isImporting(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable && strings.Contains(s.Message(), importing)
}

// importing is what the message of such an answer has.
const importing = "an import is under way"
