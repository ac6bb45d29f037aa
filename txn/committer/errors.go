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
	// ErrConflict: what the transaction has read was changed before it could commit. It is not
	// committed; run it again.
	ErrConflict = errors.New("conflict")
	// ErrAborted: the transaction was aborted by another one, or because nothing was heard of it.
	// Run it again.
	ErrAborted = errors.New("transaction aborted")
	// ErrTooOld: the transaction began before what the coordinator keeps.
	ErrTooOld = errors.New("transaction too old")
	// ErrOutcomeUnknown: the transaction may be committed, or may be yet.
	ErrOutcomeUnknown = errors.New("outcome unknown")
	// ErrClosed: the Committer is closed.
	ErrClosed = errors.New("committer closed")
)

// Error is how a transaction ended without a commit, or without a known one.
type Error struct {
	// Kind is one of the errors above.
	Kind error
	// Key is what the conflict was about, or what the older transaction wanted, Other the
	// transaction in the way; both empty if not known.
	Key   Key
	Other []byte
	// Reason goes with ErrAborted.
	Reason kvpb.AbortReason
	// Limit is which one the transaction was beyond, if that is the Reason and it is known.
	Limit time.Duration
	// LeaderChanged goes with ErrConflict: nothing may have changed but the leader that kept
	// volatile locks, under which Key, if there is one, or others of its partition were read.
	LeaderChanged bool
	// Cause is the answer, or the lack of one.
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

// Unwrap gives the kind and the cause.
func (e *Error) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Kind}
	}
	return []error{e.Kind, e.Cause}
}

// status is how a transaction stands that ended with ErrAborted.
func (e *Error) status() *kvpb.TransactionStatus {
	return &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED, Reason: e.Reason,
		Wounder:   e.Other,
		WantedKey: e.Key.Key, WantedKeyspace: uint32(e.Key.Keyspace),
		LimitMicros: uint64(e.Limit.Microseconds())}
}

// Retryable reports whether the transaction is certainly not committed, and may well be if it is
// run again.
func Retryable(err error) bool { return errors.Is(err, ErrConflict) || errors.Is(err, ErrAborted) }

// LeaderChanged reports whether a conflict is only that volatile locks went with their leader.
func LeaderChanged(err error) bool {
	var e *Error
	return (errors.As(err, &e) || errors.As(classify(0, err), &e)) && e.Kind == ErrConflict &&
		e.LeaderChanged
}

// codeOf is the code of a partition's answer; ok is false if there was none.
func codeOf(err error) (r *route.Error, ok bool) {
	if errors.As(err, &r) && r.Cause == nil {
		return r, true
	}
	return nil, false
}

// classify makes an *Error of an answer that has to do with transactions; others stay what they
// are.
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

// denied reports whether the client's user may not make the request, which did nothing.
func denied(err error) bool {
	r, ok := codeOf(err)
	return ok && r.Code == kvpb.ErrorCode_PERMISSION_DENIED && !r.OutcomeUnknown
}

// unknown reports whether a request that failed may have run.
func unknown(err error) bool {
	var r *route.Error
	return errors.As(err, &r) && r.OutcomeUnknown
}
