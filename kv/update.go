package kv

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// runPause is the first pause between attempts of a transaction. It doubles up to maxRunPause. Up
	// to half of each pause is left out at random.
	runPause    = time.Millisecond
	maxRunPause = 100 * time.Millisecond
)

// Update runs f in a transaction and commits its writes. It returns the commit timestamp: the
// version of all of them.
//
//	at, err := client.Update(ctx, func(tx *kv.Txn) error {
//		pair, err := tx.Get(ctx, accounts, from)
//		...
//		return tx.Put(accounts, from, less)
//	})
//
// f may run several times: after a conflict with another transaction, Update undoes everything and
// runs f again, until it succeeds or ctx ends. So f must not have effects outside the transaction
// that would be wrong if they happened twice. If f returns an error, nothing is written and Update
// returns that error unchanged. f must not use the transaction after it has returned, nor from
// several goroutines at a time.
//
// Any other error of Update means that nothing was written and never will be, unless it is
// ErrOutcomeUnknown (see Outcome). ErrConflict and ErrTransactionAborted mean that no attempt had
// succeeded when ctx ended, and name the conflict of the last attempt that ran to its end.
func (c *Client) Update(ctx context.Context, f func(tx *Txn) error,
	options ...TxnOption) (at Timestamp, err error) {
	const op = "update"
	if f == nil {
		return Timestamp{}, invalid(op, "", nil, "there is no function to run")
	}
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	ctx, span := c.conn.Tracer().Call(ctx, transactionSpan)
	defer func() { span.End(failureOf(err)) }()
	o := txnOptions{span: span}
	for _, option := range options {
		option.txn(&o)
	}
	tx, err := c.beginTxn(ctx, o, true)
	if err != nil {
		return Timestamp{}, err
	}
	var before error
	for attempt := 1; ; attempt++ {
		at, err, again := tx.run(ctx, f)
		if !again {
			return at, interrupted(ctx, op, attempt, before, err)
		}
		before = err
		if stop := c.pauseRun(ctx, attempt); stop != nil {
			return Timestamp{}, gaveUp(op, attempt, err, stop)
		}
		next, stop := tx.Again(ctx)
		if stop != nil {
			return Timestamp{}, gaveUp(op, attempt, err, stop)
		}
		tx = next
	}
}

// run makes one attempt. again is set if another attempt must follow.
func (t *Txn) run(ctx context.Context, f func(*Txn) error) (at Timestamp, err error, again bool) {
	defer t.Rollback() // ends an open transaction, if f panics
	t.transaction.Enter()
	err, dropped := t.lockAhead(ctx)
	t.transaction.Leave()
	if err == nil {
		err = f(t)
	}
	switch {
	case dropped:
		return Timestamp{}, err, true
	case t.ended && err == nil:
		return Timestamp{}, &Error{Op: "update",
			wraps: []error{ErrTransactionEnded, ErrInvalidArgument},
			Message: "the function has ended the transaction itself; Update commits when it " +
				"returns nil, and rolls back when it returns an error"}, false
	case t.failed != nil:
		// The transaction has failed, whatever f has returned.
		return Timestamp{}, t.failed, runAgain(t.failed)
	case err != nil:
		if lost := t.confirm(ctx); lost != nil {
			return Timestamp{}, lost, runAgain(lost)
		}
		return Timestamp{}, err, false
	}
	at, err = t.commit(ctx)
	return at, err, err != nil && runAgain(err)
}

// runAgain reports whether an error of a transaction means that the transaction has to run again.
func runAgain(err error) bool {
	return (errors.Is(err, ErrConflict) || errors.Is(err, ErrTransactionAborted)) &&
		!errors.Is(err, ErrOutcomeUnknown)
}

// pauseRun waits between attempts.
func (c *Client) pauseRun(ctx context.Context, attempt int) error {
	d := maxRunPause
	if attempt < 8 {
		d = min(d, runPause<<(attempt-1))
	}
	d -= time.Duration(float64(d) / 2 * float64(c.conn.Random()>>11) / (1 << 53))
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.conn.Sender.Done():
		return ErrClosed
	}
}

func isTooOld(err error) bool { return errors.Is(err, ErrTransactionTooOld) }

func asError(err error) *Error {
	var e *Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

func notFound(op, keyspace string, key []byte) *Error {
	return &Error{Op: op, Keyspace: keyspace, Key: clone(key), Message: "the key has no value",
		wraps: []error{ErrNotFound}}
}

// Outcome asks for the outcome of a transaction, when Update or Commit has failed with
// ErrOutcomeUnknown because its context ended too soon. err is that error. Before the answer, the
// transaction may be committed, or may still become committed. Asking may commit it. Outcome
// returns
//
//   - the commit timestamp: the transaction is committed;
//   - ErrConflict or ErrTransactionAborted: the transaction is not committed and never will be, so
//     that it can be run again;
//   - ErrOutcomeUnknown: ctx has ended before there was an answer, and Outcome can be called again;
//     or the coordinator of the transaction has forgotten it, because the GC window is over. Then
//     only the written keys can show the outcome.
//
// The client must still be open. The error keeps the transaction's writes in memory. Outcome must
// not be called concurrently with the same error. With any other error it fails with
// ErrInvalidArgument.
func Outcome(ctx context.Context, err error) (Timestamp, error) {
	var e *Error
	if !errors.As(err, &e) || e.outcome == nil {
		return Timestamp{}, invalid("outcome", "", nil,
			"the error is not that of a commit whose outcome is unknown")
	}
	return e.outcome(ctx)
}

// asking gives an error of a commit with unknown outcome the function that asks for the outcome.
func (t *Txn) asking(err error) error {
	if e := asError(err); e != nil && errors.Is(err, ErrOutcomeUnknown) {
		e.outcome = t.outcome
	}
	return err
}

func (t *Txn) outcome(ctx context.Context) (Timestamp, error) {
	ctx, cancel := t.client.conn.Bound(ctx)
	defer cancel()
	at, err := t.transaction.Outcome(ctx)
	if err != nil {
		return Timestamp{}, t.asking(inAttempt(t.client.wrapTxn("outcome", "", nil, err), t.attempt))
	}
	t.client.conn.Sender.Clock.Saw(at)
	return at, nil
}

// Modify changes the value of one key by a function of its present value. f gets the present pair
// (old.Exists says whether there is a value), and returns the replacement: Set(value), Delete() or
// Keep(). No other write to the key happens in between. Modify returns the pair after the change.
// Expires of the new value is set if Set was given a TTL or ExpiresAt.
//
//	pair, err := visits.Modify(ctx, key, func(old kv.Pair) (kv.Replacement, error) {
//		return kv.Set(plusOne(old.Value)), nil
//	})
//
// f may run several times, when others write to the key, until ctx ends. So f must not have effects
// that would be wrong if they happened twice. If f returns an error, nothing is written and Modify
// returns that error unchanged. The other errors are those of Update: Modify is a short form of
// Update for one key.
func (k *Keyspace) Modify(ctx context.Context, key []byte,
	f func(old Pair) (Replacement, error)) (Pair, error) {
	const op = "modify"
	bad := ""
	if f == nil {
		bad = "there is no function to run"
	}
	if err := k.check(op, key, nil, bad); err != nil {
		return Pair{}, err
	}
	var result Pair
	var written bool
	var own bool // f has failed in the last run
	var lifetime keys.Lifetime
	at, err := k.client.Update(ctx, func(tx *Txn) error {
		own = false
		old, err := tx.Get(ctx, k, key)
		if errors.Is(err, ErrNotFound) {
			old = Pair{Key: clone(key)}
		} else if err != nil {
			return err
		}
		result = old
		old.Key, old.Value = clone(old.Key), clone(old.Value) // f may change them
		replacement, err := f(old)
		if err != nil {
			own = true
			return err
		}
		switch replacement.kind {
		case replaceKeep:
			written = false
			return nil
		case replaceDelete:
			result, written = Pair{Key: clone(key)}, false
			if !old.Exists() {
				return nil
			}
			return tx.Delete(k, key)
		case replaceValue:
			result, written = Pair{Key: clone(key), Value: owned(replacement.value)}, true
			if bad := replacement.options.bad; bad != "" {
				return invalid(op, k.name, key, "%s", bad)
			}
			lifetime = replacement.options.lifetime
			return tx.write("put", k, key, replacement.own())
		}
		return invalid(op, k.name, key, "the function replaces nothing; return Set, Delete or Keep")
	})
	switch {
	case err != nil && own:
		return Pair{}, err
	case err != nil:
		return Pair{}, named(op, k.name, err)
	}
	if written {
		result.Version = at
		if lifetime != keys.DefaultLifetime {
			result.Expires = expiryOf(lifetime.ExpiryOf(at))
		}
	}
	return result, nil
}
