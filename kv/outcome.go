package kv

import (
	"context"
	"errors"
)

// Outcome asks what became of a transaction, when Update or Commit has failed with ErrOutcomeUnknown because its context ended too soon. err is
// that error. Until then the transaction may be committed, or may be yet; by asking it may become so. Outcome returns
//
//   - the commit timestamp: the transaction is committed;
//   - ErrConflict or ErrTransactionAborted: it is not, and never will be, so that it can be run again;
//   - ErrOutcomeUnknown: ctx has ended before there was an answer, and Outcome can be asked again; or those who knew have
//     forgotten it, because the GC window is over. Then only what was written can tell.
//
// The client must still be open. The error keeps what the transaction has written in memory. Outcome is not for several goroutines at a time with the
// same error. With any other error it fails with ErrInvalidArgument.
func Outcome(ctx context.Context, err error) (Timestamp, error) {
	var e *Error
	if !errors.As(err, &e) || e.outcome == nil {
		return Timestamp{}, invalid("outcome", "", nil, "the error is not that of a commit whose outcome is unknown")
	}
	return e.outcome(ctx)
}

// asking is an error of a commit, by which its outcome can be asked for if it is unknown.
func (t *Txn) asking(err error) error {
	if e := asError(err); e != nil && errors.Is(err, ErrOutcomeUnknown) {
		e.outcome = t.outcome
	}
	return err
}

func (t *Txn) outcome(ctx context.Context) (Timestamp, error) {
	ctx, cancel := t.client.bound(ctx)
	defer cancel()
	at, err := t.transaction.Outcome(ctx)
	if err != nil {
		return Timestamp{}, t.asking(inAttempt(t.client.wrapTxn("outcome", "", nil, err), t.attempt))
	}
	t.client.sender.RaiseSession(at)
	return at, nil
}
