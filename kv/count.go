package kv

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/route"
)

// Count counts keys: all of the keyspace, or those that Prefix, From and To leave. Like a Scan it
// counts one moment: the given one with At, otherwise one that shows every write acknowledged
// before the call (with LinearizableFollower, too), or, with Nearest, MaxStaleness, AnyStaleness or
// ReadYourWrites, one that replicas can answer for.
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
	c := &counter{keyspace: k, ks: ks, q: &q, began: time.Now()}
	if c.near, err = k.client.nearRead(ctx, ks, &q); err != nil {
		return 0, wrap(op, k.name, nil, err)
	}
	total, err := c.run(ctx)
	if err == nil {
		k.client.note(&q, c.began, c.at, 0, !c.near.past() && !q.hasAt)
	}
	return total, wrap(op, k.name, nil, err)
}

// counter is one running Count.
type counter struct {
	keyspace *Keyspace
	ks       *route.Keyspace
	q        *query
	// near is set if any replica may answer.
	near  *nearRead
	began time.Time
	// at is the moment that was read.
	at Timestamp
}

func (c *counter) run(ctx context.Context) (total uint64, err error) {
	k, id := c.keyspace, c.ks.ID
	parts, err := k.client.conn.Sender.PartitionsOf(ctx, id, c.q.span)
	if err != nil {
		return 0, err
	}
	if c.q.hasAt {
		c.at = c.q.at
		return c.all(ctx, parts, exactly(c.at))
	}
	if len(parts) == 1 {
		t := c.pager(parts[0])
		count, at, covers, err := c.firstPage(ctx, t)
		if err != nil {
			return 0, err
		}
		if covers {
			c.at = at
			rest, err := c.finish(ctx, t, exactly(at))
			return count + rest, err
		}
	}
	if c.near.past() {
		c.at, err = k.nearMoment(ctx, id, parts, c.q.span, c.near)
	} else {
		parts, c.at, err = k.moment(ctx, id, c.q.span, nil)
	}
	if err != nil {
		return 0, err
	}
	return c.all(ctx, parts, exactly(c.at))
}

// pager makes the pager of the part of the count that lies in one partition.
func (c *counter) pager(p *route.Partition) *pager {
	return &pager{keyspace: c.keyspace, id: c.ks.ID, hashed: c.ks.Hashed(), hash: p.Hash,
		near: c.near, rest: c.q.span.Intersect(p.Span)}
}

// firstPage lets the leader choose the moment; covers reports whether the partition that answered
// holds all there is to count.
func (c *counter) firstPage(ctx context.Context,
	t *pager) (count uint64, at Timestamp, covers bool, err error) {
	whole := t.rest
	count, at, p, err := t.countPage(ctx, nil)
	return count, at, err == nil && p.Span.ContainsSpan(whole), err
}

// all counts the partitions in parallel.
func (c *counter) all(ctx context.Context, parts []*route.Partition, s *snapshot) (uint64, error) {
	var total atomic.Uint64
	err := conn.InParallel(ctx, len(parts), conn.ParallelRequests, func(ctx context.Context,
		i int) error {
		t := c.pager(parts[i])
		if t.rest.Empty() {
			return nil
		}
		count, _, _, err := t.countPage(ctx, s)
		if err != nil {
			return err
		}
		rest, err := c.finish(ctx, t, s)
		total.Add(count + rest)
		return err
	})
	return total.Load(), err
}

// finish counts the pages after the first.
func (c *counter) finish(ctx context.Context, t *pager, s *snapshot) (count uint64, err error) {
	for !t.over {
		n, _, _, err := t.countPage(ctx, s)
		if err != nil {
			return 0, err
		}
		count += n
	}
	return count, nil
}

// Count counts keys: all of the keyspace, or those that Prefix, From and To leave.
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
	if n, _ := t.writes.Count(id.ID, q.span); n == 0 {
		ctx, cancel := t.client.conn.Bound(ctx)
		defer cancel()
		total, err := t.count(ctx, ks, id, &q)
		return total, t.fail(op, ks.name, nil, err)
	}
	q.keysOnly = true
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
