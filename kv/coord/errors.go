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

// ErrorKind is a kind of errors, for errors.Is. The calls of this package return it wrapped in an
// *Error with the details.
type ErrorKind string

// Error returns the kind in a few words.
func (k ErrorKind) Error() string { return string(k) }

// The kinds of errors.
const (
	// ErrSessionEnded: the session has ended, and so has everything that was held under it. One of
	// the next three kinds says why.
	ErrSessionEnded ErrorKind = "session ended"
	// ErrSessionClosed: the session was closed.
	ErrSessionClosed ErrorKind = "session closed"
	// ErrSessionExpired: the service reports that the session's lease has expired or was revoked.
	ErrSessionExpired ErrorKind = "session expired"
	// ErrSessionUnconfirmed: no renewal was confirmed within the time to live, by this machine's
	// monotonic clock. The service may keep the lease for a little longer.
	ErrSessionUnconfirmed ErrorKind = "session not confirmed in time"
	// ErrLost: the lock, leadership or claim is gone although its session is alive: another client has
	// deleted its key.
	ErrLost ErrorKind = "lost"
	// ErrReleased: the holder itself released the lock, leadership or claim.
	ErrReleased ErrorKind = "released"
	// ErrLocked: another client has the lock, or is waiting for it.
	ErrLocked ErrorKind = "locked"
	// ErrExists: the key exists.
	ErrExists ErrorKind = "exists"
	// ErrOutcomeUnknown: the call ended before the outcome of a write was known. The write may have
	// been executed, or may be executed later.
	ErrOutcomeUnknown ErrorKind = "outcome unknown"
	// ErrFenced: a holder with a higher token has checked the fence before.
	ErrFenced ErrorKind = "fenced"
	// ErrOwned: another owner has the key.
	ErrOwned ErrorKind = "owned"
	// ErrClockAhead: another machine's clock is ahead of this machine's clock by more than is allowed.
	ErrClockAhead ErrorKind = "clock ahead"
	// ErrInvalidArgument: the arguments of the call are invalid; nothing was changed.
	ErrInvalidArgument ErrorKind = "invalid argument"
	// ErrClosed: the client is closed.
	ErrClosed ErrorKind = "client closed"
)

// Error is the type of every error of this package, except for errors that a caller's iterating
// function returns.
type Error struct {
	// Op is the call, such as "lock".
	Op string
	// Name is the name of the lock, election, queue and so on. It is empty if the call has none.
	Name string
	// Message says what happened, and what to do.
	Message string

	// wraps are the kinds and the cause, such as the context's error or one of etcd's client.
	wraps []error
}

// Error returns everything in one sentence.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("coord: " + e.Op)
	if e.Name != "" {
		b.WriteString(" " + e.Name)
	}
	return b.String() + ": " + e.Message
}

// Unwrap returns the kinds and the cause.
func (e *Error) Unwrap() []error { return e.wraps }

// fail makes an error. If err is an error of this package, only its call is replaced.
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

// text returns an error's text, without the call that an error of this package names.
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

// verdict says whether a failed call may have had an effect.
type verdict uint8

const (
	// refused: the call had no effect, and never will.
	refused verdict = iota
	// busy: this attempt had no effect, and another attempt may succeed.
	busy
	// unknown: the call may have had an effect, or may have an effect later.
	unknown
)

// errUnsent is a kind of the error of a call that was not sent before its deadline.
var errUnsent = errors.New("not sent")

// judge returns the verdict for the error of one attempt to write.
func judge(err error) verdict {
	code := codes.Unknown
	var of rpctypes.EtcdError
	switch {
	case errors.Is(err, errUnsent), coordpb.IsNotSent(err), coordpb.IsLeaderless(err),
		coordpb.IsTooMany(err),
		rpctypes.ErrorDesc(err) == rpctypes.ErrorDesc(rpctypes.ErrGRPCNotSupportedForLearner):
		return busy // another server may be able to answer
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

// isImporting reports whether a server refused a request because an import is under way. Until the
// import ends, the server answers no requests about keys.
func isImporting(err error) bool {
	s, ok := status.FromError(err)
	return ok && s.Code() == codes.Unavailable && strings.Contains(s.Message(), importing)
}

// importing is a part of the message of such a refusal.
const importing = "an import is under way"
