package kv

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A feed with a name: where it begins is the position that is recorded for the name, and that moves
// on as the feed does. A progress counts as taken when the loop asks for what comes after it.
//
// The position is recorded beside the loop, now and then, and when the loop ends: a core that
// cannot be reached holds up no feed, and what is recorded is only ever too low. What ends the loop
// does not end a record that is under way: its position may be the last one.

// consumerEvery is the least time between two records of a position.
const consumerEvery = 5 * time.Second

const (
	// recordTimeout bounds one record of a position.
	recordTimeout = 5 * time.Second
	// lastRecord is how long the end of a loop waits for its position to be recorded, over all
	// attempts, and recordPause the time between two of them.
	lastRecord  = 5 * time.Second
	recordPause = 100 * time.Millisecond
)

// Consumer goes on where the consumer of this name has come to, and keeps what it has not taken
// from garbage collection. If there is none it is made, with the options: it begins now, or with
// Since, which counts only then. What a loop has taken when it asks for what comes after a
// progress, no loop of this name is given again, but for the last few seconds before it ended in
// any other way than by itself. One loop at a time may use a name: another one ends with
// ErrInvalidArgument when it finds that it is behind.
//
// A consumer is of the keys that it was made with. ErrInvalidArgument: this feed is of others, of
// which the position says nothing. Give it a name of its own.
//
// ErrTimestampTooOld: it has been away for longer than history is kept for it (KeepHistory). Read
// the keyspace anew as of some moment, and record that (SetConsumer with ResetPosition).
func Consumer(name string, options ...ConsumerOption) ChangesOption {
	return changesOption(func(q *changesQuery) {
		q.consumer, q.named, q.consumerOptions = name, true, options
	})
}

// consumed is the consumer of a feed.
type consumed struct {
	// set records a position.
	set    func(context.Context, Timestamp) error
	failed func(error)
	// taken has the last position that is not recorded yet.
	taken chan Timestamp
	ended chan struct{}
	// cancel ends what is being recorded.
	cancel context.CancelFunc
}

// beginConsumer finds where the consumer of the query begins, and makes it if there is none. isNew
// says that it did.
func (k *Keyspace) beginConsumer(ctx context.Context, q *changesQuery) (isNew bool, err error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	info, err := k.Consumer(ctx, q.consumer)
	if errors.Is(err, ErrConsumerNotFound) {
		var existed bool
		// Another loop may make it at the same time: then this one goes on from what that has made.
		options := append(slices.Clone(q.consumerOptions), consumerOf(q.Span), onlyNew())
		info, existed, err = k.setConsumer(ctx, q.consumer, q.since, options...)
		if err != nil || !existed {
			return true, err
		}
		isNew = info.Position == q.since // as if this one had: it may have, and its answer was lost
	}
	span := keys.Span{Start: info.From, End: info.To}
	switch {
	case err != nil:
		return false, err
	case info.TooOld:
		return false, &Error{Op: "changes", Keyspace: k.name, Timestamp: info.Position,
			Message: "the consumer " + q.consumer + " is behind by more than history is kept for it, " +
				"which is " + info.Keep.String(),
			Advice: "read the keyspace as of some moment, and have the consumer begin anew from there",
			wraps:  []error{ErrTimestampTooOld}}
	case !span.Equal(q.Span):
		return false, &Error{Op: "changes", Keyspace: k.name,
			Message: "the consumer " + q.consumer + " is of " + keys.DescribeSpan(span) + ", and this " +
				"feed of " + keys.DescribeSpan(q.Span),
			Advice: "give this feed another name, or delete the consumer or reset it with these keys, " +
				"and read them as of some moment first",
			wraps: []error{ErrInvalidArgument}}
	}
	q.since = info.Position
	return isNew, nil
}

// consume begins to record positions, until stop. The context is that of the loop. end is called
// with an error after which the feed is to end.
func (k *Keyspace) consume(ctx context.Context, q *changesQuery, failed func(error),
	end func(error)) *consumed {
	name, span := q.consumer, q.Span
	return consume(ctx, func(ctx context.Context, at Timestamp) error {
		// If the consumer was deleted meanwhile it is made again, of the same keys.
		_, err := k.SetConsumer(ctx, name, at, consumerOf(span))
		return err
	}, failed, end)
}

func consume(loop context.Context, set func(context.Context, Timestamp) error, failed func(error),
	end func(error)) *consumed {
	ctx, cancel := context.WithCancel(context.WithoutCancel(loop))
	c := &consumed{set: set, failed: failed, taken: make(chan Timestamp, 1),
		ended: make(chan struct{}), cancel: cancel}
	go func() { // until stop
		defer close(c.ended)
		if err := c.run(ctx, loop); err != nil {
			end(err)
		}
	}()
	return c
}

// run records positions until stop. Its error is final.
func (c *consumed) run(ctx, loop context.Context) error {
	var left Timestamp // what could not be recorded
	for at := range c.taken {
		recorded, err := c.record(ctx, at)
		if err != nil {
			return err
		}
		if left = at; recorded {
			left = Timestamp{}
		}
		pause(loop, consumerEvery)
	}
	for !left.IsZero() && ctx.Err() == nil {
		recorded, err := c.record(ctx, left)
		if recorded || err != nil {
			return err
		}
		pause(ctx, recordPause)
	}
	return nil
}

// pause waits for a while, or until the context ends.
func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// took has a position recorded, in place of one that is not yet.
func (c *consumed) took(at Timestamp) {
	select {
	case <-c.taken:
	default:
	}
	c.taken <- at // which has room: only this goroutine puts something there
}

// record records a position; false: it has to be tried again. Its error is final.
func (c *consumed) record(ctx context.Context, at Timestamp) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, recordTimeout)
	defer cancel()
	err := c.set(ctx, at)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, ErrTimestampTooOld), errors.Is(err, ErrInvalidArgument),
		errors.Is(err, ErrKeyspaceNotFound), errors.Is(err, ErrClosed):
		return false, err
	}
	c.failed(err)
	return false, nil
}

// stop records the last position, and returns when nothing is recorded any more. The context of the
// loop has ended.
func (c *consumed) stop() {
	late := time.AfterFunc(lastRecord, c.cancel)
	defer late.Stop()
	close(c.taken)
	<-c.ended
	c.cancel()
}
