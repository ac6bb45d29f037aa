package command

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// DeleteRange deletes the keys of a span that have a value, up to a page of them, at one timestamp.
var DeleteRange = register((*kvpb.Request_DeleteRange)(nil), Command{
	Name: "delete_range",
	Way:  InQueue,
	Body: func(q *kvpb.Request) bool { return q.GetDeleteRange() != nil },
	Permissions: func(at Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
		c := q.GetDeleteRange()
		return needSpan(needs, at.Keyspace, access.Write, c.GetStart(), c.GetEnd())
	},
	Footprint: func(q *kvpb.Request) Footprint {
		return span(q.GetDeleteRange().Start, q.GetDeleteRange().End)
	},
	Foreground:   always,
	Alone:        always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *Problem) {
		c := q.GetDeleteRange()
		return Writing{}, checkSpan(d, c.GetStart(), c.GetEnd())
	},
	Evaluate: deleteRange,
})

// deleteRange writes a tombstone over each key of the span that has a value, up to a page of them.
// It is evaluated with no write pending, so the engine is all there is to look at.
func deleteRange(e *Evaluation, q *kvpb.Request) error {
	c := q.GetDeleteRange()
	span := InternalSpan(e.Descriptor, c.Start, c.End)
	if span.Empty() {
		e.Answer(deletedRange{}.response(q), 0)
		return nil
	}
	recordKey := deletedRangeKey(span.Start, e.Request)
	if done, found, err := readDeletedRange(e.State, recordKey); err != nil {
		return err
	} else if found {
		e.HoldFor(e.CommitWait || done.waited, done.timestamp)
		// The partition may have split since.
		done.beyond = done.endKnown && !bytes.Equal(done.end, userEnd(e.Descriptor, span))
		e.Duplicate(done.response(q), 0)
		return nil
	}

	// The keys alone make up the entry; a page of them is a page of bytes too.
	var arena proposal.Arena
	result, err := mvcc.Scan(e.State, mvcc.ScanOptions{
		Span: span, At: hlc.MaxTimestamp, ExpiredAt: e.judgedAt(), KeysOnly: true,
		MaxRows: PageRows(c.MaxRows), MaxBytes: min(DefaultPageBytes, e.PageBytes),
		MaxSkipped: MaxSkipped, Vacant: e.Vacant,
	}, func(key []byte, v mvcc.Version) error {
		e.Ops = append(e.Ops, WriteOp{
			Key: arena.Copy(keys.UserKey(e.Descriptor, key)), Tombstone: true, WasLive: true,
			Prior: v.Timestamp})
		return nil
	})
	if err != nil {
		return err
	}
	e.rests(result.Expires)
	done := &deletedRange{count: uint64(len(e.Ops)), more: result.More,
		waited: !result.CommitWaitUntil.IsZero(), end: userEnd(e.Descriptor, span)}
	if result.More {
		done.resume = bytes.Clone(keys.UserKey(e.Descriptor, result.Resume))
	}
	// The answer tells of what was written with commit wait, and of what was deleted with it.
	e.HoldFor(true, result.CommitWaitUntil)
	if len(e.Ops) == 0 {
		e.NothingDone(done.response(q), 0)
		return nil
	}
	e.Record = func(at hlc.Timestamp, batch *engine.StateBatch) error {
		done.timestamp = at
		return batch.Set(recordKey, done.append(nil), nil)
	}
	e.Write(func(_ *Result, q *kvpb.Request, _ hlc.Timestamp) *kvpb.Response {
		return done.response(q)
	})
	return nil
}

// userEnd is the user key before which a span of internal keys ends; empty at the end of the
// keyspace, or hash number.
func userEnd(d *clusterpb.Partition, span keys.Span) []byte {
	if !bytes.HasPrefix(span.End, keys.PartitionPrefix(d)) {
		return []byte{}
	}
	return bytes.Clone(keys.UserKey(d, span.End))
}

func (d deletedRange) response(q *kvpb.Request) *kvpb.Response {
	r := &kvpb.DeleteRangeResponse{
		Deleted: d.count, More: d.more, Resume: d.resume, Version: wire.ToTimestamp(d.timestamp)}
	if d.beyond && !d.more {
		r.DoneTo = d.end
	}
	return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_DeleteRange{DeleteRange: r}}
}
