package kv

import (
	"context"
	"errors"
	"time"
)

// A feed with a name: where it begins is the position that is recorded for the name, and that moves
// on as the feed does. A progress counts as taken when the loop asks for what comes after it.
//
// The position is recorded beside the loop, now and then, and when the loop ends: a core that cannot
// be reached holds up no feed, and what is recorded is only ever too low.

// consumerEvery is the least time between two records of a position.
const consumerEvery = 5 * time.Second

// lastRecord is how long the end of a loop waits for its position to be recorded.
const lastRecord = 5 * time.Second

// Consumer goes on where the consumer of this name has come to, and keeps what it has not taken from
// garbage collection. If there is none it is made, with the options: it begins now, or with Since,
// which counts only then. What a loop has taken when it asks for what comes after a progress, no
// loop of this name is given again, but for the last few seconds before it ended in any other way
// than by itself. One loop at a time may use a name: another one ends with ErrInvalidArgument when it
// finds that it is behind.
//
// ErrTimestampTooOld: it has been away for longer than history is kept for it (KeepHistory). Read the
// keyspace anew as of some moment, and record that (SetConsumer with ResetPosition).
func Consumer(name string, options ...ConsumerOption) ChangesOption {
	return changesOption(func(q *changesQuery) {
		q.consumer, q.named, q.consumerOptions = name, true, options
	})
}

// consumed is the consumer of a feed.
type consumed struct {
	keyspace *Keyspace
	name     string
	failed   func(error)
	// taken has the last position that is not recorded yet.
	taken chan Timestamp
	ended chan struct{}
}

// beginConsumer finds where the consumer of the query begins, and makes it if there is none. isNew
// says that it did.
func (k *Keyspace) beginConsumer(ctx context.Context, q *changesQuery) (isNew bool, err error) {
	ctx, cancel := k.client.bound(ctx)
	defer cancel()
	info, err := k.Consumer(ctx, q.consumer)
	switch {
	case errors.Is(err, ErrConsumerNotFound):
		_, err = k.SetConsumer(ctx, q.consumer, q.since, q.consumerOptions...)
		return true, err
	case err != nil:
		return false, err
	case info.TooOld:
		return false, &Error{Op: "changes", Keyspace: k.name, Timestamp: info.Position,
			Message: "the consumer " + q.consumer + " is behind by more than history is kept for it, which " +
				"is " + info.Keep.String(),
			Advice: "read the keyspace as of some moment, and have the consumer begin anew from there",
			wraps:  []error{ErrTimestampTooOld}}
	}
	q.since = info.Position
	return false, nil
}

// consume begins to record positions. end is called with an error after which the feed is to end.
func (k *Keyspace) consume(ctx context.Context, name string, failed func(error),
	end func(error)) *consumed {
	c := &consumed{keyspace: k, name: name, failed: failed, taken: make(chan Timestamp, 1),
		ended: make(chan struct{})}
	go func() { // until stop
		defer close(c.ended)
		for at := range c.taken {
			if err := c.record(ctx, at); err != nil {
				end(err)
				return
			}
			select {
			case <-time.After(consumerEvery):
			case <-ctx.Done():
			}
		}
	}()
	return c
}

// took has a position recorded, in place of one that is not yet.
func (c *consumed) took(at Timestamp) {
	select {
	case <-c.taken:
	default:
	}
	c.taken <- at // which has room: only this goroutine puts something there
}

// record records a position. Its error is final.
func (c *consumed) record(ctx context.Context, at Timestamp) error {
	if ctx.Err() != nil { // the loop has ended
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), lastRecord)
		defer cancel()
	}
	_, err := c.keyspace.SetConsumer(ctx, c.name, at)
	switch {
	case err == nil, ctx.Err() != nil:
		return nil
	case errors.Is(err, ErrTimestampTooOld), errors.Is(err, ErrInvalidArgument),
		errors.Is(err, ErrKeyspaceNotFound), errors.Is(err, ErrClosed):
		return err
	}
	c.failed(err) // the next one will do
	return nil
}

// stop records the last position, and returns when nothing is recorded any more. The context that
// consume was given has ended.
func (c *consumed) stop() {
	close(c.taken)
	<-c.ended
}
