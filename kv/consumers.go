package kv

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/feed"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// MinHistory and MaxHistory are the limits of how long history is kept for a consumer.
	// DefaultHistory is the default.
	MinHistory     = time.Second
	MaxHistory     = 7 * 24 * time.Hour
	DefaultHistory = 24 * time.Hour
)

// The servers have the same limits.
var _ = [1]struct{}{}[(MinHistory-keys.MinConsumerKeep)|(MaxHistory-keys.MaxConsumerKeep)|
	(DefaultHistory-keys.DefaultConsumerKeep)]

// ConsumerInfo describes a consumer of a keyspace's changes. While its lag is at most its Keep,
// garbage collection keeps the versions that it has not taken, whatever the keyspace's GC window
// says.
type ConsumerInfo struct {
	Keyspace, Name string
	// From and To are the limits of the consumer's keys: keys at or above From and below To. An empty
	// To means no upper limit.
	From, To []byte
	// SpanHidden is set if the consumer has limits which this client may not see.
	SpanHidden bool
	// Position is the position of the consumer: it has taken all changes at or below it.
	Position Timestamp
	// Lag is how far the position is behind the cluster's clock.
	Lag time.Duration
	// Keep is the time for which history is kept for the consumer.
	Keep time.Duration
	// Created is the time at which the consumer was created. Updated is the time at which it was last
	// set.
	Created, Updated time.Time
	// TooOld is set if the consumer fell behind by more than its Keep. History is no longer kept for
	// it, and it has to begin again (ResetPosition).
	TooOld bool
}

// ConsumerOption is an option of SetConsumer: KeepHistory, ResetPosition, Prefix, From, To, All.
type ConsumerOption interface {
	consumer(*clusterpb.SetConsumerRequest) error
}

type consumerOption func(*clusterpb.SetConsumerRequest) error

func (o consumerOption) consumer(r *clusterpb.SetConsumerRequest) error { return o(r) }

// KeepHistory sets for how long history is kept for a consumer, counted back from the present: in
// whole milliseconds, from MinHistory to MaxHistory. A new consumer has DefaultHistory. Without the
// option an existing consumer keeps its setting. History needs disk space for every version that
// the consumer has not taken.
func KeepHistory(d time.Duration) ConsumerOption {
	return consumerOption(func(r *clusterpb.SetConsumerRequest) error {
		r.KeepMillis = uint64(max(1, d.Milliseconds()))
		return keys.ValidateConsumerKeep(r.KeepMillis)
	})
}

// ResetPosition makes a consumer begin again at the given position, even if the position is below
// the recorded one, or the consumer has become too old. Versions that were collected meanwhile are
// lost.
func ResetPosition() ConsumerOption {
	return consumerOption(func(r *clusterpb.SetConsumerRequest) error {
		r.Reset_ = true
		return nil
	})
}

// consumer sets the keys of a consumer.
func (o SpanOption) consumer(r *clusterpb.SetConsumerRequest) error {
	var q query
	q.Span = keys.Span{Start: r.Span.GetStart(), End: r.Span.GetEnd()}
	o.apply(&q)
	if q.bad != "" {
		return errors.New(q.bad)
	}
	r.Span = &clusterpb.ConsumerSpan{Start: q.Span.Start, End: q.Span.End}
	return keys.ValidateConsumerSpan(q.Span)
}

// consumerOf returns an option that sets the keys of a consumer.
func consumerOf(span keys.Span) ConsumerOption {
	return consumerOption(func(r *clusterpb.SetConsumerRequest) error {
		r.Span = &clusterpb.ConsumerSpan{Start: span.Start, End: span.End}
		return keys.ValidateConsumerSpan(span)
	})
}

// onlyNew leaves an existing consumer unchanged.
func onlyNew() ConsumerOption {
	return consumerOption(func(r *clusterpb.SetConsumerRequest) error {
		r.OnlyNew = true
		return nil
	})
}

// SetConsumer records that a consumer has taken everything at or below a position. It creates the
// consumer, or moves it forward. It may be repeated. A zero position leaves the position unchanged.
// A name has 1 to 256 bytes. A keyspace has at most 1,000 consumers.
//
// A new consumer is for all keys, or for the keys of Prefix, From and To. A consumer that is reset
// with these options gets their keys. Otherwise the keys of an existing consumer do not change.
//
// ErrTimestampTooOld: the consumer was behind by more than its keep and was dropped, or it is
// created or reset at a position that is older than its keep. History may be missing, so the caller
// has to read everything again and reset the consumer. ErrInvalidArgument: the position is below
// the recorded one, which happens if two processes use one name; or it is above the cluster's
// clocks; or the consumer has other keys.
func (k *Keyspace) SetConsumer(ctx context.Context, name string, position Timestamp,
	options ...ConsumerOption) (ConsumerInfo, error) {
	info, _, err := k.setConsumer(ctx, name, position, options...)
	return info, err
}

// setConsumer also reports whether the consumer existed and was left unchanged (onlyNew).
func (k *Keyspace) setConsumer(ctx context.Context, name string, position Timestamp,
	options ...ConsumerOption) (info ConsumerInfo, existed bool, err error) {
	const op = "set consumer"
	r := &clusterpb.SetConsumerRequest{Keyspace: k.name, Name: name,
		Position: wire.ToClusterTimestamp(position)}
	if err := k.checkConsumer(op, name); err != nil {
		return info, false, err
	}
	for _, o := range options {
		if err := o.consumer(r); err != nil {
			return info, false, invalid(op, k.name, nil, "%v", err)
		}
	}
	answer, err := conn.Ask(ctx, k.client.conn, clusterpb.ClusterClient.SetConsumer, r)
	return consumerInfo(answer.GetConsumer()), answer.GetExisted(), wrapAdmin(op, k.name, err)
}

// Consumer describes a consumer. It fails with ErrConsumerNotFound if there is none with this name.
func (k *Keyspace) Consumer(ctx context.Context, name string) (ConsumerInfo, error) {
	const op = "get consumer"
	if err := k.checkConsumer(op, name); err != nil {
		return ConsumerInfo{}, err
	}
	answer, err := conn.Ask(ctx, k.client.conn, clusterpb.ClusterClient.GetConsumer,
		&clusterpb.GetConsumerRequest{Keyspace: k.name, Name: name})
	found := answer.GetConsumer()
	switch {
	case err != nil:
		return ConsumerInfo{}, wrapAdmin(op, k.name, err)
	case found == nil:
		return ConsumerInfo{}, &Error{Op: op, Keyspace: k.name,
			Message: "there is no consumer " + keys.Pretty([]byte(name)),
			Advice:  "`tidemark consumers` shows those there are",
			wraps:   []error{ErrConsumerNotFound}}
	}
	return consumerInfo(found), nil
}

// Consumers lists the consumers of the keyspace by name.
func (k *Keyspace) Consumers(ctx context.Context) ([]ConsumerInfo, error) {
	if k.name == "" {
		return nil, invalid("list consumers", "", nil, "the keyspace has no name")
	}
	return k.client.Consumers(ctx, k.name)
}

// DeleteConsumer deletes a consumer, and reports whether it existed. History is not kept for it any
// more. A later use of the name creates a new consumer.
func (k *Keyspace) DeleteConsumer(ctx context.Context, name string) (existed bool, err error) {
	const op = "delete consumer"
	if err := k.checkConsumer(op, name); err != nil {
		return false, err
	}
	answer, err := conn.Ask(ctx, k.client.conn, clusterpb.ClusterClient.DeleteConsumer,
		&clusterpb.DeleteConsumerRequest{Keyspace: k.name, Name: name})
	return answer.GetExisted(), wrapAdmin(op, k.name, err)
}

func (k *Keyspace) checkConsumer(op, name string) error {
	if k.name == "" {
		return invalid(op, "", nil, "the keyspace has no name")
	}
	if err := keys.ValidateConsumerName(name); err != nil {
		return invalid(op, k.name, nil, "%v", err)
	}
	return nil
}

// Consumers lists the consumers of a keyspace by name, or with an empty name those of all
// keyspaces.
func (c *Client) Consumers(ctx context.Context, keyspace string) ([]ConsumerInfo, error) {
	ctx, cancel := c.conn.Bound(ctx)
	defer cancel()
	var all []ConsumerInfo
	request := &clusterpb.ListConsumersRequest{Keyspace: keyspace}
	for more := true; more; more = len(request.After) > 0 {
		page, err := conn.Ask(ctx, c.conn, clusterpb.ClusterClient.ListConsumers, request)
		if err != nil {
			return nil, wrapAdmin("list consumers", keyspace, err)
		}
		for _, found := range page.GetConsumers() {
			all = append(all, consumerInfo(found))
		}
		request.After = page.GetNext()
	}
	return all, nil
}

func consumerInfo(c *clusterpb.Consumer) ConsumerInfo {
	if c == nil {
		return ConsumerInfo{}
	}
	return ConsumerInfo{Keyspace: c.Keyspace, Name: c.Name,
		From: c.Span.GetStart(), To: c.Span.GetEnd(), SpanHidden: c.SpanHidden,
		Position: wire.FromClusterTimestamp(c.Position),
		Lag:      time.Duration(c.LagMillis) * time.Millisecond,
		Keep:     time.Duration(c.KeepMillis) * time.Millisecond,
		Created:  time.UnixMilli(c.CreatedUnixMs), Updated: time.UnixMilli(c.UpdatedUnixMs),
		TooOld: c.TooOld}
}

// Consumer makes a feed continue at the position of the consumer with this name. The history that
// the consumer has not taken is protected from garbage collection. If there is no such consumer, it
// is created with the options. A new consumer begins now, or at the timestamp of Since, which is
// used only for a new consumer. When a loop asks for the change after a progress, the consumer has
// taken everything up to that progress, and a later loop with this name does not get it again. Only
// if a loop is interrupted (and does not end by itself), the changes of the last few seconds may be
// repeated. Only one loop at a time may use a name: another one ends with ErrInvalidArgument when
// it finds that it is behind.
//
// A consumer belongs to the keys with which it was created. ErrInvalidArgument: this feed has other
// keys, for which the consumer's position means nothing. Use another consumer for this feed.
//
// ErrTimestampTooOld: the consumer was away for longer than history is kept for it (KeepHistory).
// Read the keyspace again at some timestamp, and record that timestamp (SetConsumer with
// ResetPosition).
func Consumer(name string, options ...ConsumerOption) ChangesOption {
	return changesOption(func(q *changesQuery) {
		q.consumer, q.named, q.consumerOptions = name, true, options
	})
}

// beginConsumer finds the position of the query's consumer, and creates the consumer if there is
// none. isNew reports that it was created.
func (k *Keyspace) beginConsumer(ctx context.Context, q *changesQuery) (isNew bool, err error) {
	ctx, cancel := k.client.conn.Bound(ctx)
	defer cancel()
	info, err := k.Consumer(ctx, q.consumer)
	if errors.Is(err, ErrConsumerNotFound) {
		var existed bool
		// Another loop may create it at the same time. Then this loop continues with that consumer.
		options := append(slices.Clone(q.consumerOptions), consumerOf(q.Span), onlyNew())
		info, existed, err = k.setConsumer(ctx, q.consumer, q.since, options...)
		if err != nil || !existed {
			return true, err
		}
		isNew = info.Position == q.since // it may have created it and lost the answer
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

// consume starts to record positions, until Stop. ctx is the context of the loop. failed is called
// with an error after which the feed has to end.
func (k *Keyspace) consume(ctx context.Context, q *changesQuery, failed,
	end func(error)) *feed.Recorder {
	name, span := q.consumer, q.Span
	return feed.Record(ctx, func(ctx context.Context, at Timestamp) error {
		// A consumer that was deleted meanwhile is created again, with the same keys.
		_, err := k.SetConsumer(ctx, name, at, consumerOf(span))
		return err
	}, consumerLost, failed, end)
}

// consumerLost reports whether a consumer can no longer be used, given the error of recording its
// position.
func consumerLost(err error) bool {
	return errors.Is(err, ErrTimestampTooOld) || errors.Is(err, ErrInvalidArgument) ||
		errors.Is(err, ErrKeyspaceNotFound) || errors.Is(err, ErrClosed)
}
