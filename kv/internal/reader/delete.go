package reader

import (
	"context"
	"sync/atomic"

	"github.com/tidemarkdb/tidemark/kv/internal/conn"
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

// DeleteRange deletes all keys of a span, in chunks, and returns how many it certainly has.
func (k Keyspace) DeleteRange(ctx context.Context, span keys.Span) (uint64, error) {
	parts, err := k.Conn.Sender.PartitionsOf(ctx, k.ID, span)
	if err != nil {
		return 0, err
	}
	var total atomic.Uint64
	err = conn.InParallel(ctx, len(parts), deleteParallel, func(ctx context.Context, i int) error {
		t := &Pager{keyspace: k, hash: parts[i].Hash, rest: span.Intersect(parts[i].Span)}
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
	return total.Load(), err
}

// deletePage deletes the next chunk.
func (t *Pager) deletePage(ctx context.Context) (deleted uint64, err error) {
	ctx, cancel := t.keyspace.Conn.Bound(ctx)
	defer cancel()
	command := &kvpb.DeleteRangeRequest{MaxRows: deleteChunk}
	call := t.Call(&kvpb.Request{Command: &kvpb.Request_DeleteRange{DeleteRange: command}},
		func(_ *route.Partition, _ route.Leader, span keys.Span) {
			command.Start, command.End = span.Start, span.End
		})
	call.Write = true
	answer, err := t.keyspace.Conn.Sender.Do(ctx, call)
	if err != nil {
		return 0, err
	}
	r := answer.GetDeleteRange()
	if err := t.sane(answer, r.GetMore(), r.GetResume()); err != nil {
		return r.GetDeleted(), err
	}
	t.advance(answer.Partition, r.GetMore(), r.GetResume())
	if r.DoneTo != nil && !r.GetMore() {
		// An earlier attempt was answered by a partition that has split since: keys that it has
		// deleted are not deleted again.
		t.doneTo(r.DoneTo)
	}
	return r.GetDeleted(), nil
}
