package reader

import (
	"context"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/range/route"
)

// Count is one running count.
type Count struct {
	Keyspace Keyspace
	Query    Query
	// Near is set if any replica may answer.
	Near *Near
	// at is the timestamp that was read.
	at hlc.Timestamp
}

// At returns the timestamp that Run has read.
func (c *Count) At() hlc.Timestamp { return c.at }

// Run counts at a timestamp that it finds, unless the query has one.
func (c *Count) Run(ctx context.Context) (total uint64, err error) {
	k := c.Keyspace
	parts, err := k.Conn.Sender.PartitionsOf(ctx, k.ID, c.Query.Span)
	if err != nil {
		return 0, err
	}
	if c.Query.HasAt {
		c.at = c.Query.At
		return c.All(ctx, parts, Exactly(c.at))
	}
	if len(parts) == 1 {
		t := c.pager(parts[0])
		count, at, covers, err := c.firstPage(ctx, t)
		if err != nil {
			return 0, err
		}
		if covers {
			c.at = at
			rest, err := c.finish(ctx, t, Exactly(at))
			return count + rest, err
		}
	}
	if c.Near.Past() {
		c.at, err = k.nearSnapshot(ctx, parts, c.Query.Span, c.Near)
	} else {
		parts, c.at, err = k.SnapshotTimestamp(ctx, c.Query.Span, nil)
	}
	if err != nil {
		return 0, err
	}
	return c.All(ctx, parts, Exactly(c.at))
}

// pager makes the pager of the part of the count that lies in one partition.
func (c *Count) pager(p *route.Partition) *Pager {
	return &Pager{keyspace: c.Keyspace, hash: p.Hash, near: c.Near,
		rest: c.Query.Span.Intersect(p.Span)}
}

// firstPage lets the leader choose the timestamp; covers reports whether the partition that
// answered holds everything that is to be counted.
func (c *Count) firstPage(ctx context.Context,
	t *Pager) (count uint64, at hlc.Timestamp, covers bool, err error) {
	whole := t.rest
	count, at, p, err := t.countPage(ctx, nil)
	return count, at, err == nil && p.Span.ContainsSpan(whole), err
}

// All counts the partitions in parallel.
func (c *Count) All(ctx context.Context, parts []*route.Partition, s *Snapshot) (uint64, error) {
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
func (c *Count) finish(ctx context.Context, t *Pager, s *Snapshot) (count uint64, err error) {
	for !t.over {
		n, _, _, err := t.countPage(ctx, s)
		if err != nil {
			return 0, err
		}
		count += n
	}
	return count, nil
}
