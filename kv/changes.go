package kv

import (
	"context"
	"errors"
	"iter"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/changes"
	"github.com/tidemarkdb/tidemark/kv/internal/feed"
	"github.com/tidemarkdb/tidemark/kv/internal/whole"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Changes iterates over all writes to a keyspace, from now on or since a timestamp, for as long as
// the loop runs.
//
//	for change, err := range ks.Changes(ctx, kv.Since(position), kv.Prefix([]byte("user/"))) {
//		if err != nil {
//			return err
//		}
//		switch change.Kind {
//		case kv.ChangePut:
//			...
//		case kv.ChangeDelete:
//			...
//		case kv.ChangeProgress:
//			position = change.Timestamp // and store it
//		}
//	}
//
// It yields every version: each put and delete of each key, by any call, with its timestamp.
// Versions of one key come in the order of their timestamps. Versions of different keys come in any
// order, even the versions of one transaction, which have the same timestamp.
//
// A progress with a timestamp comes after all changes at or below that timestamp, of all keys of
// the feed. So the timestamp of the last progress is the position of a feed. The next feed, Since
// that timestamp, continues where this feed ended, and repeats only the changes that came after
// that progress. Within one loop no change comes twice, and no change at or below a progress comes
// after it. A change comes when its timestamp is closed: about a second after the write, depending
// on the keyspace's ClosedLag.
//
// A read At the timestamp of a progress returns the result of all changes up to that timestamp,
// without values that have expired by then (Change.Expires). An expiry is not reported as a change.
// To copy a keyspace, start with a Scan At a timestamp, and continue with the changes Since that
// timestamp.
//
// Any replica can answer, the nearest first (Locality). A feed needs no leader, and does not delay
// writes. Partitions may split, merge and move, and nodes may fail meanwhile: the feed continues,
// and waits for partitions that cannot be read. It holds at most 16 MiB of changes that the loop
// has not taken yet, and asks for no more until the loop takes them.
//
// An error ends the loop. ErrTimestampTooOld: the keyspace's GC window has passed some of the
// changes since the timestamp. Read the keyspace again, and continue from that read.
// ErrKeyspaceNotFound: the keyspace was dropped.
//
// With Consumer the position has a name, and the servers record it.
//
// Without Whole, changes that are above the next progress may come before it. With Whole such
// changes come after it, so that the changes between two progresses lead from one consistent state
// to the next.
//
// Options are Since, Consumer, Prefix, From, To, ProgressEvery and Whole.
func (k *Keyspace) Changes(ctx context.Context, options ...ChangesOption) iter.Seq2[Change, error] {
	return func(yield func(Change, error) bool) {
		if err := k.changes(ctx, options, func(c Change) bool { return yield(c, nil) }); err != nil {
			yield(Change{}, err)
		}
	}
}

// changes runs a feed until it ends with an error, or yield returns false.
func (k *Keyspace) changes(ctx context.Context, options []ChangesOption,
	yield func(Change) bool) error {
	const op = "changes"
	q := changesQuery{every: defaultProgress}
	for _, o := range options {
		o.changes(&q)
	}
	if bad := q.check(); bad != "" {
		return invalid(op, k.name, nil, "%s", bad)
	}
	ks, err := k.boundedResolve(ctx, op)
	if err != nil {
		return err
	}
	if q.empty() {
		return invalid(op, k.name, nil, "there is no key between From and To")
	}
	if err := k.changesOf(ctx, &q, ks.ID, feed.NewAsker(k.client.conn, ks, q.Span),
		yield); err != nil {
		return changesError(op, k.name, err)
	}
	return nil
}

// changesOf runs the feed.
func (k *Keyspace) changesOf(ctx context.Context, q *changesQuery, id keys.KeyspaceID,
	a *feed.Asker,
	yield func(Change) bool) error {
	begins, err := k.beginChanges(ctx, q, id)
	if err != nil {
		return err
	}
	if begins && !yield(Change{Kind: ChangeProgress, Timestamp: q.since}) {
		return nil
	}
	running := k.client.feeds.Begin(k.name, q.since)
	defer running.End()
	took := func(Timestamp) {}
	if q.named {
		var cancel context.CancelCauseFunc
		ctx, cancel = context.WithCancelCause(ctx)
		consumer := k.consume(ctx, q, running.NotRecorded, cancel)
		defer consumer.Stop()
		defer cancel(nil)
		took = consumer.Took
	}
	c := changes.Config{Asker: a, Spans: a.Spans(), After: q.since, ProgressEvery: q.every,
		Failed: running.Failed}
	hand := func(c Change) bool {
		if c.Kind != ChangeProgress {
			running.Changed()
			return yield(c)
		}
		running.Progress(c.Timestamp)
		goesOn := yield(c)
		if goesOn {
			took(c.Timestamp)
		}
		return goesOn
	}
	if q.whole == nil {
		err = changes.Run(ctx, c, func(e changes.Event) bool { return hand(changeOf(e)) })
	} else {
		g := grouped{buffer: whole.New(*q.whole), hand: hand}
		c.Keeper = g.buffer
		err = wholeError(k.name, errors.Join(changes.Run(ctx, c, g.take), g.close()))
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx) // the consumer may have ended it
	}
	return err
}

// changeOf converts an event of a feed to a Change.
func changeOf(e changes.Event) Change {
	if e.Change == nil {
		return Change{Kind: ChangeProgress, Timestamp: e.Progress}
	}
	return newChange(e.Change.Key, e.Change.Value, fromWire(e.Change.Version), e.Change.Deleted,
		int64(e.Change.Expires))
}

func newChange(key, value []byte, at Timestamp, deleted bool, expires int64) Change {
	c := Change{Kind: ChangePut, Key: key, Value: value, Timestamp: at, Expires: expiryOf(expires)}
	if c.Value == nil {
		c.Value = []byte{}
	}
	if deleted {
		c.Kind, c.Value = ChangeDelete, nil
	}
	return c
}

// beginChanges waits until the partitions are known, and chooses the timestamp at which the feed
// begins. now is set if the caller gave no timestamp.
func (k *Keyspace) beginChanges(ctx context.Context, q *changesQuery,
	id keys.KeyspaceID) (now bool, err error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	if _, err := k.client.conn.Sender.PartitionsOf(ctx, id, q.Span); err != nil {
		return false, err
	}
	if !q.hasSince {
		earliest, _, err := k.client.conn.Clocks(ctx)
		if err != nil {
			return false, err
		}
		// Later writes have timestamps above the clocks of their leaders. These clocks may be behind by
		// the maximum clock offset.
		q.since = earliest.Add(-k.client.conn.MaxClockOffset())
	}
	if q.named {
		isNew, err := k.beginConsumer(ctx, q)
		return isNew && !q.hasSince, err
	}
	return !q.hasSince, nil
}

// ChangeKind says what a Change is.
type ChangeKind uint8

// The kinds of changes.
const (
	// ChangePut: the key has a value from the timestamp on.
	ChangePut ChangeKind = iota + 1
	// ChangeDelete: the key has no value from the timestamp on. It may have had no value before.
	ChangeDelete
	// ChangeProgress: all changes at or below the timestamp have come.
	ChangeProgress
)

// String returns the kind as a word.
func (c ChangeKind) String() string {
	switch c {
	case ChangePut:
		return "put"
	case ChangeDelete:
		return "delete"
	case ChangeProgress:
		return "progress"
	}
	return "unknown"
}

// Change is yielded by Changes. The slices belong to the caller.
type Change struct {
	Kind ChangeKind
	// Key is the key that was written; nil with ChangeProgress. Value is the value of a put.
	Key, Value []byte
	// Timestamp is the timestamp of the version, or of the progress.
	Timestamp Timestamp
	// Expires is the time at which the value of a put expires. It is zero if the value does not
	// expire. The expiry itself is not a change.
	Expires time.Time
}

const (
	defaultProgress = time.Second
	minProgress     = 10 * time.Millisecond
	maxProgress     = time.Minute
)

// changesQuery holds the options of a feed.
type changesQuery struct {
	query
	since    Timestamp
	hasSince bool
	every    time.Duration
	// whole is set if the feed uses Whole. It limits the waiting changes.
	whole *whole.Limits
	// consumer is the name of the consumer, if named is set.
	consumer        string
	named           bool
	consumerOptions []ConsumerOption
}

// ChangesOption is an option of Changes: Since, Consumer, Prefix, From, To, All, ProgressEvery,
// Whole.
type ChangesOption interface{ changes(*changesQuery) }

type changesOption func(*changesQuery)

func (o changesOption) changes(q *changesQuery) { o(q) }

func (o SpanOption) changes(q *changesQuery) { o.apply(&q.query) }

// Since starts the feed after ts: the timestamp of a progress, or of a read of the keyspace. The
// zero timestamp is before all writes. It works only until garbage collection has removed a version
// of the keyspace.
func Since(ts Timestamp) ChangesOption {
	return changesOption(func(q *changesQuery) { q.since, q.hasSince = ts, true })
}

// SinceTime starts the feed with the writes after t, by the cluster's clocks.
func SinceTime(t time.Time) ChangesOption { return Since(TimestampOf(t)) }

// ProgressEvery sets the interval of progresses, from 10 ms to a minute. The default is a second. A
// progress comes later if some changes are not complete yet.
func ProgressEvery(d time.Duration) ChangesOption {
	return changesOption(func(q *changesQuery) {
		q.every = d
		if d < minProgress || d > maxProgress {
			q.bad = "ProgressEvery must be from " + minProgress.String() + " to " + maxProgress.String()
		}
	})
}

// changesError returns the error with which a feed ended.
func changesError(op, keyspace string, err error) error {
	err = wrap(op, keyspace, nil, err)
	var e *Error
	if errors.As(err, &e) && errors.Is(err, ErrTimestampTooOld) && !e.Bound.IsZero() {
		e.Message = "the changes since " + e.Timestamp.String() + " are not all kept any more, but " +
			"those since " + e.Bound.String()
		e.Advice = "read the keyspace as of a later moment and go on from there, and give it a GC " +
			"window (--gc-window) that is longer than a consumer may be away"
	}
	return err
}
