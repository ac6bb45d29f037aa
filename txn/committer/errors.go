package committer

import (
	"errors"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// The kinds of errors, for errors.Is.
var (
	// ErrConflict: before the transaction could commit, another one changed keys that it had read.
	// The transaction is not committed; run it again.
	ErrConflict = errors.New("conflict")
	// ErrAborted: another transaction has aborted this one, or its heartbeats were not heard. Run
	// it again.
	ErrAborted = errors.New("transaction aborted")
	// ErrTooOld: the transaction began below the coordinator's garbage collection threshold.
	ErrTooOld = errors.New("transaction too old")
	// ErrOutcomeUnknown: the transaction may be committed, or may still become committed.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrClosed: the Committer is closed.
	ErrClosed = errors.New("committer closed")
)

// Error is the error of a transaction that was not committed, or whose outcome is unknown.
type Error struct {
	// Kind is one of the errors above.
	Kind error
	// Key is the key of the conflict, or the key that the older transaction wanted; Other is the
	// transaction in the way. Both are empty if not known.
	Key   Key
	Other []byte
	// Reason is why the transaction was aborted; set with ErrAborted.
	Reason kvpb.AbortReason
	// Limit is the limit that the transaction has exceeded, if the Reason is a limit and the limit
	// is known.
	Limit time.Duration
	// LeaderChanged may be set with ErrConflict. Then perhaps no key has changed: a leader has
	// changed, and with it were lost the volatile locks under which Key, or if Key is empty other
	// keys of its partition, were read.
	LeaderChanged bool
	// Cause is the answer of a partition, or why no answer came.
	Cause error
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Kind.Error())
	if len(e.Key.Key) > 0 {
		b.WriteString(" over key " + keys.Pretty(e.Key.Key))
	}
	if e.Cause != nil {
		b.WriteString(": " + e.Cause.Error())
	}
	return b.String()
}

// Unwrap returns the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// status returns the transaction status in the answer behind an ErrAborted.
func (e *Error) status() *kvpb.TransactionStatus {
	return &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED, Reason: e.Reason,
		Wounder:   e.Other,
		WantedKey: e.Key.Key, WantedKeyspace: uint32(e.Key.Keyspace),
		LimitMicros: uint64(e.Limit.Microseconds())}
}

// Retryable reports whether the transaction is certainly not committed, and may succeed if it is
// run again.
func Retryable(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrAborted) }

// LeaderChanged reports whether a conflict is only a loss of volatile locks with their leader.
func LeaderChanged(err error) bool {
	var e *Error
	return (errors.As(err, &e) || errors.As(classify(0, err), &e)) && e.Kind == ErrConflict &&
		e.LeaderChanged
}

// codeOf returns the error of a partition's answer; ok is false if no partition answered.
func codeOf(err error) (r *route.Error, ok bool) {
	if errors.As(err, &r) && r.Cause == nil {
		return r, true
	}
	return nil, false
}

// classify turns an answer about transactions into an *Error, and returns other errors unchanged.
func classify(id keys.KeyspaceID, err error) error {
	r, ok := codeOf(err)
	if !ok {
		return err
	}
	if of := r.Conflict.GetKeyspace(); of != 0 {
		id = keys.KeyspaceID(of)
	}
	e := &Error{Cause: err, Key: Key{Keyspace: id, Key: r.Conflict.GetKey()},
		Other: r.Conflict.GetTransaction(), Reason: r.Conflict.GetReason(),
		LeaderChanged: r.Conflict.GetLeaderChanged(),
		Limit: txn.LimitOf(
			&kvpb.TransactionStatus{Reason: r.Conflict.GetReason(),
				LimitMicros: r.Conflict.GetLimitMicros()})}
	switch r.Code {
	case kvpb.ErrorCode_TRANSACTION_CONFLICT:
		e.Kind = ErrConflict
	case kvpb.ErrorCode_TRANSACTION_ABORTED:
		e.Kind = ErrAborted
	case kvpb.ErrorCode_TRANSACTION_TOO_OLD:
		e.Kind = ErrTooOld
	default:
		return err
	}
	return e
}

// denied reports whether a request was refused for lack of permission, and so did nothing.
func denied(err error) bool {
	r, ok := codeOf(err)
	return ok && r.Code == kvpb.ErrorCode_PERMISSION_DENIED && !r.OutcomeUnknown
}

// unknown reports whether a failed request may have executed.
func unknown(err error) bool {
	var r *route.Error
	return errors.As(err, &r) && r.OutcomeUnknown
}
