package kv

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// deleteChunk is how many keys one request deletes.
	deleteChunk = 1000
	// deleteParallel is how many partitions are worked on at a time.
	deleteParallel = 8
)

// DeleteRange deletes all keys of a span, which must be said: Prefix, From, To, or All. It returns
// how many there were.
//
// It is not atomic: it works in chunks of a thousand keys, several partitions at a time, and each
// chunk is deleted as a whole and for good. Keys that are written meanwhile may or may not be
// deleted. If it ends early, with its context or by an error, it returns the number of deletions
// that are certain, along with the error; call it again to go on.
func (k *Keyspace) DeleteRange(ctx context.Context, options ...DeleteRangeOption) (uint64, error) {
	const op = "delete-range"
	var q query
	for _, o := range options {
		o.deleteRange(&q)
	}
	if !q.explicit {
		q.bad = "no keys are given; use Prefix, From and To, or All"
	}
	if bad := q.check(); bad != "" {
		return 0, invalid(op, k.name, nil, "%s", bad)
	}
	ks, err := k.boundedResolve(ctx, op)
	if err != nil || q.empty() {
		return 0, err
	}
	parts, err := k.client.conn.Sender.PartitionsOf(ctx, ks.ID, q.span)
	if err != nil {
		return 0, wrap(op, k.name, nil, err)
	}
	var total atomic.Uint64
	err = conn.InParallel(ctx, len(parts), deleteParallel, func(ctx context.Context, i int) error {
		t := &pager{keyspace: k, id: ks.ID, hashed: ks.Hashed(), hash: parts[i].Hash,
			rest: q.span.Intersect(parts[i].Span)}
		t.over = t.rest.Empty()
		for !t.over {
			n, err := t.deletePage(ctx)
			total.Add(n)
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		return total.Load(), nil
	}
	err = wrap(op, k.name, nil, err)
	var e *Error
	if errors.As(err, &e) {
		e.Message = fmt.Sprintf("%d keys were deleted so far; %s", total.Load(), e.Message)
	}
	return total.Load(), err
}

// deletePage deletes the next chunk.
func (t *pager) deletePage(ctx context.Context) (deleted uint64, err error) {
	ctx, cancel := t.keyspace.client.conn.Bound(ctx)
	defer cancel()
	command := &kvpb.DeleteRangeRequest{MaxRows: deleteChunk}
	call := t.call(&kvpb.Request{Command: &kvpb.Request_DeleteRange{DeleteRange: command}},
		func(_ *route.Partition, _ route.Leader, span keys.Span) {
			command.Start, command.End = span.Start, span.End
		})
	call.Write = true
	answer, err := t.keyspace.client.conn.Sender.Do(ctx, call)
	if err != nil {
		return 0, err
	}
	r := answer.GetDeleteRange()
	if err := t.sane(answer, r.GetMore(), r.GetResume()); err != nil {
		return r.GetDeleted(), err
	}
	t.advance(answer.Partition, r.GetMore(), r.GetResume())
	if r.DoneTo != nil && !r.GetMore() {
		// An earlier attempt was answered by a partition that has split since: what it has deleted is
		// not deleted again.
		t.doneTo(r.DoneTo)
	}
	return r.GetDeleted(), nil
}

// DeleteRange deletes all keys of a span, which must be said: Prefix, From, To, or All. It returns
// how many there were. It reads the span, and each key counts as a write of the transaction.
func (t *Txn) DeleteRange(ctx context.Context, ks *Keyspace,
	options ...DeleteRangeOption) (uint64, error) {
	const op = "delete-range"
	var deleted uint64
	for p, err := range t.scanAs(ctx, op, ks, func(q *query) {
		for _, o := range options {
			o.deleteRange(q)
		}
		if !q.explicit {
			q.bad = "no keys are given; use Prefix, From and To, or All"
		}
		q.keysOnly = true
	}) {
		if err == nil {
			err = t.write(op, ks, p.Key, writes.Own{Deleted: true})
		}
		if err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}
