package kv

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/reader"
)

// Count counts the keys of the keyspace, or the keys within Prefix, From and To. Like a Scan it
// counts at one timestamp. With At, that is the given timestamp. Without options or with
// LinearizableFollower, the count includes every write that was acknowledged before the call. With
// Nearest, MaxStaleness, AnyStaleness or ReadYourWrites, it is a timestamp for which replicas can
// answer.
func (k *Keyspace) Count(ctx context.Context, options ...CountOption) (uint64, error) {
	const op = "count"
	var q query
	for _, o := range options {
		o.count(&q)
	}
	if bad := q.check(); bad != "" {
		return 0, invalid(op, k.name, nil, "%s", bad)
	}
	ks, err := k.boundedResolve(ctx, op)
	if err != nil || q.empty() {
		return 0, err
	}
	began := time.Now()
	c := &reader.Count{Keyspace: k.reader(ks), Query: q.Query}
	if c.Near, err = k.client.nearRead(ctx, ks, &q); err != nil {
		return 0, wrap(op, k.name, nil, err)
	}
	total, err := c.Run(ctx)
	if err == nil {
		k.client.note(&q, began, c.At(), 0, !c.Near.Past() && !q.HasAt)
	}
	return total, wrap(op, k.name, nil, err)
}

// Count counts the keys of the keyspace, or the keys within Prefix, From and To.
func (t *Txn) Count(ctx context.Context, ks *Keyspace, options ...CountOption) (uint64, error) {
	const op = "count"
	t.transaction.Enter()
	defer t.transaction.Leave()
	if err := t.check(op, ks, nil); err != nil {
		return 0, err
	}
	q, id, err := scanQuery(ctx, op, ks, func(q *query) {
		for _, o := range options {
			o.count(q)
		}
	})
	if err != nil || q.empty() {
		return 0, err
	}
	if err := t.holdAhead(ctx); err != nil {
		return 0, t.fail(op, ks.name, nil, err)
	}
	if n, _ := t.writes.Count(id.ID, q.Span); n == 0 {
		ctx, cancel := t.client.conn.Bound(ctx)
		defer cancel()
		total, err := t.count(ctx, ks, id, &q)
		return total, t.fail(op, ks.name, nil, err)
	}
	q.KeysOnly = true
	var total uint64
	t.scan(ctx, ks, id, q, t.writes, func(_ Pair, failed error) bool {
		if failed != nil {
			err = t.fail(op, ks.name, nil, failed)
			return false
		}
		total++
		return true
	})
	if err != nil {
		return 0, err
	}
	return total, nil
}
