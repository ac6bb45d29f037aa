package command

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// DeleteRange deletes the keys of a span that have a value, up to a page of them, at one timestamp.
var DeleteRange = register((*kvpb.Request_DeleteRange)(nil), Command{
	Name:     "delete_range",
	Dispatch: InQueue,
	Body:     func(q *kvpb.Request) bool { return q.GetDeleteRange() != nil },
	Permissions: func(at request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		c := q.GetDeleteRange()
		return request.NeedSpan(needs, at.Keyspace, access.Write, c.GetStart(), c.GetEnd())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Span(q.GetDeleteRange().Start, q.GetDeleteRange().End)
	},
	Foreground:   always,
	Alone:        always,
	MayDoNothing: always,
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (Writing, *request.Problem) {
		c := q.GetDeleteRange()
		return Writing{}, request.CheckSpan(d, c.GetStart(), c.GetEnd())
	},
	Evaluate: deleteRange,
})

// deleteRange writes a tombstone over each key of the span that has a value, up to a page of them.
// It is evaluated with no write pending, so the engine is all there is to look at.
func deleteRange(e *Evaluation, q *kvpb.Request) error {
	c := q.GetDeleteRange()
	span := request.InternalSpan(e.Descriptor, c.Start, c.End)
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

	// The entry holds only the keys; a page of them is a page of bytes too.
	var arena proposal.Arena
	result, err := mvcc.Scan(e.State, mvcc.ScanOptions{
		Span: span, At: hlc.MaxTimestamp, ExpiredAt: e.judgedAt(), KeysOnly: true,
		MaxRows: request.PageRows(c.MaxRows), MaxBytes: min(request.DefaultPageBytes, e.PageBytes),
		MaxSkipped: request.MaxSkipped, Vacant: e.Vacant,
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
	// The answer reveals what was written with commit wait, and what was deleted with it.
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

// userEnd returns the user key before which a span of internal keys ends; empty at the end of the
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

// A DeleteRange leaves a record of what it did beside the versions, anchored at the start of the
// span. Without the record, each first attempt would have to look through all versions of the span
// above its session's timestamp to learn that it is the first. Records are collected as versions
// are. An attempt that finds nothing to delete leaves none.

// deletedRange is the record of a DeleteRange that took effect.
type deletedRange struct {
	timestamp hlc.Timestamp
	count     uint64
	more      bool
	// waited is set if it deleted or wrote versions with commit wait, all below the timestamp.
	waited bool
	// resume is a user key.
	resume []byte
	// end is the user key before which the span ended: empty if that was the end of its keyspace,
	// or hash number. Records of the first version do not have it.
	end      []byte
	endKnown bool
	// beyond is set if the partition that answers ends before end.
	beyond bool
}

// deletedRangeVersion is the first byte of a record. Records of the first version have no end.
const (
	deletedRangeVersion1 = 1
	deletedRangeVersion  = 2
)

const (
	deletedMore   = 1
	deletedWaited = 2
)

// deletedRangeSuffix starts the anchored suffix of a record; client and sequence follow, 8 bytes
// each.
const deletedRangeSuffix = "deleted-range/"

func deletedRangeKey(start []byte, id mvcc.RequestID) []byte {
	suffix := append(make([]byte, 0, len(deletedRangeSuffix)+16), deletedRangeSuffix...)
	suffix = binary.BigEndian.AppendUint64(suffix, id.Client)
	suffix = binary.BigEndian.AppendUint64(suffix, id.Sequence)
	return keys.AnchorKey(start, string(suffix))
}

func (d *deletedRange) append(dst []byte) []byte {
	dst = append(dst, deletedRangeVersion)
	dst = proposal.AppendTimestamp(dst, d.timestamp)
	dst = binary.AppendUvarint(dst, d.count)
	flags := byte(0)
	if d.more {
		flags |= deletedMore
	}
	if d.waited {
		flags |= deletedWaited
	}
	dst = binary.AppendUvarint(append(dst, flags), uint64(len(d.resume)))
	return append(append(dst, d.resume...), d.end...)
}

// decodeDeletedRange reads what append wrote.
func decodeDeletedRange(data []byte) (deletedRange, error) {
	if len(data) == 0 || data[0] != deletedRangeVersion && data[0] != deletedRangeVersion1 {
		return deletedRange{}, errors.New("unknown version")
	}
	dec := proposal.Decoder{Data: data[1:]}
	d := deletedRange{timestamp: dec.Timestamp(), count: dec.Uvarint()}
	if dec.Bad || len(dec.Data) == 0 || dec.Data[0]&^(deletedMore|deletedWaited) != 0 {
		return deletedRange{}, errors.New("malformed")
	}
	d.more, d.waited = dec.Data[0]&deletedMore != 0, dec.Data[0]&deletedWaited != 0
	dec.Data = dec.Data[1:]
	length := uint64(len(dec.Data))
	if data[0] == deletedRangeVersion {
		if length = dec.Uvarint(); dec.Bad || length > uint64(len(dec.Data)) {
			return deletedRange{}, errors.New("malformed")
		}
		d.end, d.endKnown = append([]byte{}, dec.Data[length:]...), true
	}
	if length > 0 {
		d.resume = append([]byte(nil), dec.Data[:length]...)
	}
	return d, nil
}

func readDeletedRange(state engine.Reader, key []byte) (d deletedRange, found bool, err error) {
	value, closer, err := state.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	defer closer.Close()
	if d, err = decodeDeletedRange(value); err != nil {
		return d, false, fmt.Errorf("record %s: %w", keys.PrettyState(key), err)
	}
	return d, true, nil
}

// DeletedRangeAt returns the timestamp of a stored record of a DeleteRange. The record may be
// removed when the garbage collection threshold reaches it.
func DeletedRangeAt(value []byte) (hlc.Timestamp, error) {
	d, err := decodeDeletedRange(value)
	return d.timestamp, err
}
