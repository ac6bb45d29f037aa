package kv

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn/committer"
)

// wrapTxn converts an error of the committer or of the router about a transaction to an *Error. A
// single request's outcome does not matter here: only the committer knows the outcome of the
// transaction.
func (c *Client) wrapTxn(op, keyspace string, key []byte, err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	var of *committer.Error
	if !errors.As(err, &of) {
		var r *route.Error
		if errors.As(err, &r) && keyspace == "" && len(r.Conflict.GetKey()) > 0 {
			// A commit knows only the ids of keyspaces, and a key without its keyspace's name is
			// useless.
			if ks := c.conn.Sender.Table().KeyspaceByID(r.Keyspace); ks != nil {
				keyspace = ks.Info.Name
			}
		}
		return certain(wrap(op, keyspace, key, knownRoute(err)))
	}
	e := &Error{Op: op, Keyspace: keyspace, Key: clone(key),
		Transaction: hex.EncodeToString(of.Other)}
	named := len(of.Key.Key) > 0
	if named {
		ks := c.conn.Sender.Table().KeyspaceByID(of.Key.Keyspace)
		switch {
		case ks != nil:
			e.Key, e.Keyspace = clone(of.Key.Key), ks.Info.Name
		case of.Kind == committer.ErrAborted:
			named = false // the key is in another keyspace, which was dropped
		default:
			e.Key = clone(of.Key.Key)
		}
	}
	// The words for the key, unless it is the key of the call.
	theKey, partitionOfKey := "the key", "the key's partition"
	if named && keyspace != "" && (keyspace != e.Keyspace || !bytes.Equal(key, e.Key)) {
		e.call = &subject{keyspace, clone(key)}
		theKey = keys.Pretty(e.Key)
		if keyspace != e.Keyspace {
			theKey += fmt.Sprintf(" in keyspace %q", e.Keyspace)
		}
		partitionOfKey = "the partition of " + theKey
	}
	var r *route.Error
	if errors.As(of.Cause, &r) {
		e.Partition, e.Node = uint64(r.Partition), uint64(r.Node)
		e.Timestamp, e.Bound = r.Refused, boundOf(r)
	}
	other := "another transaction"
	if len(of.Other) > 0 {
		other += " (" + e.Transaction + ")"
	}
	switch of.Kind {
	case committer.ErrConflict:
		e.wraps = []error{ErrConflict}
		e.Message = "what the transaction has read was changed"
		if named {
			e.Message = theKey + " was changed after the transaction had read it"
		}
		if len(of.Other) > 0 {
			e.Message += ", or is about to be, by " + other // the other transaction has locked it
		}
		if of.LeaderChanged {
			e.Message = "the leader of " + partitionOfKey +
				" changed, and with it went the lock under which the transaction had read"
			if len(of.Key.Key) == 0 {
				e.Message = "a partition's leader changed, and with it went locks under which " +
					"the transaction had read"
			}
		}
		e.Advice = runAgainAdvice
	case committer.ErrAborted:
		e.wraps = []error{ErrTransactionAborted}
		switch of.Reason {
		case kvpb.AbortReason_WOUNDED:
			older := "an older one"
			if len(of.Other) > 0 {
				older += " (" + e.Transaction + ")"
			}
			e.wraps = append(e.wraps, ErrWounded)
			e.Message = "the transaction was aborted, because " + older +
				" wanted a key that it had locked"
			if named {
				e.Message = "the transaction was aborted, because " + older + " wanted " + theKey +
					", which it had locked"
			}
		case kvpb.AbortReason_ABANDONED:
			e.Message = "the transaction was aborted, because nothing had been heard of its " +
				"client for too long"
		case kvpb.AbortReason_EXPIRED:
			e.wraps = append(e.wraps, ErrTransactionExpired)
			e.Message = "the transaction was aborted, because it had gone on for longer than " +
				limitWords(of.Limit, "txn-max-age")
		case kvpb.AbortReason_IDLE:
			e.wraps = append(e.wraps, ErrTransactionExpired)
			e.Message = "the transaction was aborted, because it held locks and no call had been " +
				"made in it for longer than " +
				limitWords(of.Limit, "txn-max-idle")
		case kvpb.AbortReason_REQUESTED:
			e.Message = "the transaction was aborted, because an operator asked for it"
		default:
			e.Message = "the transaction was aborted"
		}
		e.Advice = runAgainAdvice
	case committer.ErrTooOld:
		e.wraps = []error{ErrTransactionTooOld}
		e.Message = "the transaction began longer ago than versions are kept"
		e.Advice = "make it shorter, or give the keyspace a longer GC window"
	case committer.ErrOutcomeUnknown:
		e.wraps = []error{ErrOutcomeUnknown}
		e.Message = "the transaction may or may not be committed, or may be yet"
		e.Advice = "ask kv.Outcome, or read what it has written, to find out"
		if _, forgotten := isCode(of.Cause, kvpb.ErrorCode_TRANSACTION_TOO_OLD); forgotten {
			e.Message = "the transaction may or may not be committed, and its coordinator has " +
				"forgotten it"
			e.Advice = "read what it has written to find out"
		}
	default:
		e.Message = of.Kind.Error()
	}
	if of.Cause != nil {
		e.wraps = append(e.wraps, causesOf(of.Cause)...)
		if of.Kind == committer.ErrOutcomeUnknown {
			e.Message += ": " + because(of.Cause)
		}
	}
	return e
}

// limitWords describes a limit of a keyspace, and its setting. A zero limit is not known.
func limitWords(limit time.Duration, setting string) string {
	if limit == 0 {
		return "a keyspace that it locks keys of allows (" + setting + ")"
	}
	return limit.String() + ", which is what a keyspace that it locks keys of allows (" + setting +
		")"
}

// because returns the text of a cause. The Error adds the partition, the node and the unknown
// outcome itself.
func because(cause error) string {
	r, ok := cause.(*route.Error)
	if !ok {
		return route.Plain(cause.Error())
	}
	known := *r
	known.Message, known.OutcomeUnknown, known.Partition, known.Node = words(r, ""), false, 0, 0
	return known.Error()
}

// inAttempt records the attempt of the transaction, or View, in which an error occurred.
func inAttempt(err error, attempt int) error {
	if e := asError(err); e != nil && e.Attempts == 0 {
		e.Attempts = attempt
	}
	return err
}

// causesOf returns the causes that errors.Is should find: the context's error, and the end of the
// client.
func causesOf(err error) []error {
	var r *route.Error
	if errors.As(err, &r) && r.Cause != nil {
		return append(causes(r.Cause), r.Cause)
	}
	return causes(err)
}

// knownRoute returns a request's failure without its unknown outcome.
func knownRoute(err error) error {
	var r *route.Error
	if !errors.As(err, &r) {
		return err
	}
	known := *r
	known.OutcomeUnknown = false
	if known.Code == kvpb.ErrorCode_OUTCOME_UNKNOWN {
		// A request for a lock may or may not have acquired the lock. The transaction is not committed in
		// either case.
		known.Code = kvpb.ErrorCode_UNKNOWN_ERROR
	}
	return &known
}

// certain converts the failure of a read at a timestamp that has become too old to a failure of the
// transaction.
func certain(err error) error {
	var e *Error
	if errors.As(err, &e) && errors.Is(err, ErrTimestampTooOld) {
		e.wraps = append(e.wraps, ErrTransactionTooOld)
		e.Advice = kinds[kvpb.ErrorCode_TRANSACTION_TOO_OLD].advice
	}
	return err
}

// mustRunAgain reports whether the transaction is not committed, and may succeed in another
// attempt.
func mustRunAgain(err error) bool {
	_, conflict := isCode(err, kvpb.ErrorCode_TRANSACTION_CONFLICT)
	_, aborted := isCode(err, kvpb.ErrorCode_TRANSACTION_ABORTED)
	return conflict || aborted || committer.Retryable(err)
}

// runAgainAdvice is the advice after a conflict for callers that end transactions themselves.
const runAgainAdvice = "run the transaction again"

// gaveUp returns the error of an Update or View whose context ended before an attempt succeeded.
// cause is the end of the context, and may be nil.
func gaveUp(op string, attempts int, last, cause error) error {
	times := "attempts"
	if attempts == 1 {
		times = "attempt"
	}
	return inVain(op, attempts, fmt.Sprintf("gave up after %d %s; the last: ", attempts, times),
		last, cause)
}

// interrupted returns the error of an Update or View whose last attempt ended with err. If the
// context had ended, the conflict of the attempt before, if there was one, is more useful: the
// point at which the deadline interrupts an attempt is a matter of chance.
func interrupted(ctx context.Context, op string, attempts int, before, err error) error {
	over := ctx.Err()
	if err == nil || before == nil || over == nil || !errors.Is(err, over) || runAgain(err) ||
		errors.Is(err, ErrOutcomeUnknown) {
		return err
	}
	return inVain(op, attempts, fmt.Sprintf("gave up in attempt %d; the one before: ", attempts),
		before, err)
}

// inVain puts words before the message of the last conflict.
func inVain(op string, attempts int, words string, last, cause error) error {
	var e *Error
	if !errors.As(last, &e) {
		return last
	}
	out := *e
	out.Op, out.Attempts, out.counted, out.call = op, attempts, true, nil
	// The transaction was run again until the deadline.
	out.Message = words + e.Message
	if e.Advice == runAgainAdvice {
		out.Advice = "give it more time"
		if op == "update" && errors.Is(last, ErrConflict) {
			out.Advice += ", or lock the key with GetForUpdate"
		}
	}
	out.wraps = append([]error{cause}, e.wraps...)
	if cause == nil {
		out.wraps = e.wraps
	}
	return &out
}

// ended returns the error of a use after the end.
func ended(op string, key []byte) *Error {
	return &Error{Op: op, Key: clone(key), wraps: []error{ErrTransactionEnded},
		Message: "the transaction has ended; use it only inside the function that it is handed " +
			"to, or before Commit and Rollback"}
}

// tooLarge returns the error of a write that exceeds the limits.
func tooLarge(op, keyspace string, key []byte, message string) *Error {
	return &Error{Op: op, Keyspace: keyspace, Key: clone(key), Message: message,
		wraps: []error{ErrTransactionTooLarge, ErrInvalidArgument}}
}
