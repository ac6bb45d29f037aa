package committer

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// errNothingToAsk is the error of Outcome for a transaction whose outcome is known.
var errNothingToAsk = errors.New("the outcome of the transaction is known")

// Outcome asks for the outcome of a transaction whose Commit has ended with ErrOutcomeUnknown;
// asking may still commit the transaction. Outcome returns the commit timestamp; or ErrConflict or
// ErrAborted, if the transaction is not committed and never will be; or ErrOutcomeUnknown again, if
// ctx has ended before there was an answer, or if nothing is left that could give the outcome. It
// must not be called concurrently.
func (t *Transaction) Outcome(ctx context.Context) (hlc.Timestamp, error) {
	if t.asks == nil {
		return hlc.Timestamp{}, errNothingToAsk
	}
	at, err := t.asks(ctx)
	if err == nil || Retryable(err) {
		t.asks = func(context.Context) (hlc.Timestamp, error) { return at, err }
	}
	return at, err
}

// askOnePhase sends the request of a one-phase commit again, with the same identity: the request
// takes effect at most once.
func (t *Transaction) askOnePhase(ctx context.Context, r *Request) (hlc.Timestamp, error) {
	response, err := t.c.sender.Send(ctx, r)
	if err == nil {
		if at := wire.FromTimestamp(response.GetPrepare().GetPrepared()); !at.IsZero() {
			return at, nil
		}
		err = errors.New("a commit was answered without a timestamp")
	}
	if errors.Is(err, ErrMoved) {
		at, asked := t.executed(ctx, r)
		switch {
		case asked == nil:
			return at, nil
		case errors.Is(asked, ErrMoved):
			return hlc.Timestamp{}, &Error{Kind: ErrAborted, Reason: kvpb.AbortReason_ROLLED_BACK,
				Cause: errors.New("its partition has changed before it was committed")}
		}
		err = asked
	}
	// A conflict or an abort is final. Any other error tells nothing about the first attempt.
	if c := classify(r.Place.Keyspace, err); Retryable(c) {
		return hlc.Timestamp{}, c
	}
	return hlc.Timestamp{}, &Error{Kind: ErrOutcomeUnknown, Cause: err}
}

// executed asks for the outcome of the request of a one-phase commit whose keys are no longer in
// one partition. ErrMoved reports that the request did not run, and never will.
func (t *Transaction) executed(ctx context.Context, r *Request) (hlc.Timestamp, error) {
	mutations := r.Command.GetPrepare().GetMutations()
	i := slices.IndexFunc(mutations, func(m *kvpb.Mutation) bool {
		return m.Kind == kvpb.Mutation_PUT || m.Kind == kvpb.Mutation_DELETE
	})
	at, executed, err := t.c.sender.Executed(ctx, r, mutations[i].Key)
	if err == nil && !executed {
		err = ErrMoved
	}
	return at, err
}

// askAgain asks for the decision again, at the timestamp that was asked for last.
func (d *decision) askAgain(ctx context.Context) (hlc.Timestamp, error) {
	d.maybe = true
	bound, status, err := d.ask(ctx, d.last)
	switch {
	case err != nil:
		return hlc.Timestamp{}, err
	case status != nil:
		d.t.c.background(func(ctx context.Context) {
			d.t.c.resolve(ctx, d.t.wire(), status, d.locks, d.t.held.all)
		})
		return wire.FromTimestamp(status.Timestamp), nil
	}
	// The transaction is pending, and can only be committed above the bound. No request asks for a
	// timestamp above it, so the transaction is aborted.
	d.t.abort(d.locks)
	return hlc.Timestamp{}, &Error{Kind: ErrAborted, Reason: kvpb.AbortReason_ABANDONED,
		Cause: errors.New("it was pushed above " + bound.String() + " before it was committed")}
}
