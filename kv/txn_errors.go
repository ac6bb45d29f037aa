package kv

import (
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn/coordinator"
)

// wrapTxn turns what the coordinator and the router say about a transaction into an *Error. Whatever a single request says of its
// outcome, only the coordinator knows that of the transaction.
func (c *Client) wrapTxn(op, keyspace string, key []byte, err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	var of *coordinator.Error
	if !errors.As(err, &of) {
		var r *route.Error
		if errors.As(err, &r) && keyspace == "" && len(r.Conflict.GetKey()) > 0 {
			// A commit knows only keyspaces' ids, and a key without a keyspace's name is of no use.
			if ks := c.sender.Table().KeyspaceByID(r.Keyspace); ks != nil {
				keyspace = ks.Info.Name
			}
		}
		return certain(wrap(op, keyspace, key, knownRoute(err)))
	}
	e := &Error{Op: op, Keyspace: keyspace, Key: clone(of.Key.Key), Transaction: hex.EncodeToString(of.Other)}
	if len(e.Key) == 0 {
		e.Key = clone(key)
	} else if ks := c.sender.Table().KeyspaceByID(of.Key.Keyspace); ks != nil {
		e.Keyspace = ks.Info.Name
	}
	var r *route.Error
	if errors.As(of.Cause, &r) {
		e.Partition, e.Node = uint64(r.Partition), uint64(r.Node)
	}
	other := "another transaction"
	if len(of.Other) > 0 {
		other += " (" + e.Transaction + ")"
	}
	switch of.Kind {
	case coordinator.ErrConflict:
		e.wraps = []error{ErrConflict}
		e.Message = "what the transaction has read was changed"
		if len(of.Key.Key) > 0 {
			e.Message = "the key was changed after the transaction had read it"
		}
		if len(of.Other) > 0 {
			e.Message += ", by " + other
		}
		e.Message += "; run the transaction again"
	case coordinator.ErrAborted:
		e.wraps = []error{ErrTransactionAborted}
		switch of.Reason {
		case kvpb.AbortReason_WOUNDED:
			e.Message = "the transaction was aborted, because an older one wanted a key that it had locked"
		case kvpb.AbortReason_ABANDONED:
			e.Message = "the transaction was aborted, because nothing had been heard of its client for too long"
		default:
			e.Message = "the transaction was aborted"
		}
		e.Message += "; run it again"
	case coordinator.ErrTooOld:
		e.wraps = []error{ErrTransactionTooOld}
		e.Message = "the transaction began longer ago than versions are kept; make it shorter, or give the keyspace a longer GC window"
	case coordinator.ErrOutcomeUnknown:
		e.wraps = []error{ErrOutcomeUnknown}
		e.Message = "the transaction may or may not be committed, or may be yet; read what it has written to find out"
	default:
		e.Message = of.Kind.Error()
	}
	if of.Cause != nil {
		e.wraps = append(e.wraps, causesOf(of.Cause)...)
		if of.Kind == coordinator.ErrOutcomeUnknown {
			e.Message += ": " + of.Cause.Error()
		}
	}
	return e
}

// causesOf are the causes worth to be found by errors.Is: the context's error, and the client's end.
func causesOf(err error) []error {
	var r *route.Error
	if errors.As(err, &r) && r.Cause != nil {
		return append(causes(r.Cause), r.Cause)
	}
	return causes(err)
}

// knownRoute is a request's failure without its doubt about the request's outcome.
func knownRoute(err error) error {
	var r *route.Error
	if !errors.As(err, &r) {
		return err
	}
	known := *r
	known.OutcomeUnknown = false
	return &known
}

// certain is a failure of a read at a moment that has become too old: the transaction has.
func certain(err error) error {
	var e *Error
	if errors.As(err, &e) && errors.Is(err, ErrTimestampTooOld) {
		e.wraps = append(e.wraps, ErrTransactionTooOld)
	}
	return err
}

// mustRunAgain reports whether the transaction is not committed, and is worth another attempt.
func mustRunAgain(err error) bool {
	_, conflict := isCode(err, kvpb.ErrorCode_TRANSACTION_CONFLICT)
	_, aborted := isCode(err, kvpb.ErrorCode_TRANSACTION_ABORTED)
	return conflict || aborted || coordinator.Retryable(err)
}

// gaveUp is the error of an Update or View whose context ended before an attempt succeeded.
func gaveUp(op string, attempts int, last, cause error) error {
	var e *Error
	if !errors.As(last, &e) {
		return last
	}
	out := *e
	out.Op, out.Attempts = op, attempts
	out.Message = fmt.Sprintf("gave up after %d attempts; the last: %s", attempts, e.Message)
	out.wraps = append([]error{cause}, e.wraps...)
	if cause == nil {
		out.wraps = e.wraps
	}
	return &out
}

// ended is the error of a use after the end.
func ended(op string, key []byte) *Error {
	return &Error{Op: op, Key: clone(key), wraps: []error{ErrTransactionEnded},
		Message: "the transaction has ended; use it only inside the function that it is handed to, or before Commit and Rollback"}
}

// tooLarge is the error of a write that goes beyond the limits.
func tooLarge(op, keyspace string, key []byte, message string) *Error {
	return &Error{Op: op, Keyspace: keyspace, Key: clone(key), Message: message, wraps: []error{ErrTransactionTooLarge, ErrInvalidArgument}}
}
