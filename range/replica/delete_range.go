package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// deleteRange writes a tombstone over each key of the span that has a value, up to a page of them, at one timestamp.
//
// It is evaluated with nothing in flight (write.alone), so the engine is all there is to look at.
//
// What was done is recorded beside the versions, anchored at the start of the span: without a record, each first attempt
// would have to look through all versions of the span above its session's timestamp to know that it is the first. The record is
// collected as versions are. An attempt that finds nothing to delete leaves none.
func (e *evaluation) deleteRange(w *write, c *kvpb.DeleteRangeRequest) error {
	r, q := e.r, w.pending.Request
	span := command.InternalSpan(e.descriptor, c.Start, c.End)
	if span.Empty() {
		e.answerRead(w, deleteRangeResponse(q.Id, deletedRange{}), 0)
		return nil
	}
	id := mvcc.RequestID{Client: w.pending.Client, Sequence: q.Sequence}
	recordKey := deletedRangeKey(span.Start, id)
	if done, found, err := readDeletedRange(r, recordKey); err != nil {
		return err
	} else if found {
		e.holdFor(e.waits || done.waited, done.timestamp)
		e.answerDuplicate(w, deleteRangeResponse(q.Id, done), 0)
		return nil
	}

	// The keys alone make up the entry; a page of them is a page of bytes too.
	var arena proposal.Arena
	var effects []effect
	result, err := mvcc.Scan(r.state, mvcc.ScanOptions{
		Span: span, At: hlc.MaxTimestamp, KeysOnly: true,
		MaxRows: command.PageRows(c.MaxRows), MaxBytes: int64(min(command.DefaultPageBytes, r.node.MaxEntryBytes)),
		MaxSkipped: command.MaxSkipped,
	}, func(key []byte, v mvcc.Version) error {
		effects = append(effects, effect{
			userKey: arena.Copy(keys.UserKey(e.descriptor, key)), tombstone: true, wasLive: true, priorTimestamp: v.Timestamp})
		return nil
	})
	if err != nil {
		return err
	}
	done := deletedRange{count: uint64(len(effects)), more: result.More, waited: !result.Waits.IsZero()}
	if result.More {
		done.resume = append([]byte(nil), keys.UserKey(e.descriptor, result.Resume)...)
	}
	// The answer tells of what was written with commit wait, and of what was deleted with it.
	e.holdFor(true, result.Waits)
	if len(effects) == 0 {
		e.answerNothingDone(w, deleteRangeResponse(q.Id, done), 0)
		return nil
	}
	ts, ok, err := e.write(w, effects...)
	if err == nil && ok {
		done.timestamp = ts
		err = e.batch.Set(recordKey, done.append(nil), nil)
	}
	return e.wrote(w, ok, err, func() *kvpb.Response { return deleteRangeResponse(q.Id, done) })
}

func deleteRangeResponse(id uint64, d deletedRange) *kvpb.Response {
	return &kvpb.Response{Id: id, Result: &kvpb.Response_DeleteRange{DeleteRange: &kvpb.DeleteRangeResponse{
		Deleted: d.count, More: d.more, Resume: d.resume, Version: rpc.ToTimestamp(d.timestamp)}}}
}

// deletedRange is the record of a DeleteRange that took effect.
type deletedRange struct {
	timestamp hlc.Timestamp
	count     uint64
	more      bool
	// waited: it tells of versions with commit wait, all below the timestamp.
	waited bool
	// resume is a user key.
	resume []byte
}

const deletedRangeVersion = 1

const (
	deletedMore   = 1
	deletedWaited = 2
)

// deletedRangeSuffix starts the anchored suffix of a record; client and sequence follow, 8 bytes each.
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
	return append(append(dst, flags), d.resume...)
}

func decodeDeletedRange(data []byte) (deletedRange, error) {
	if len(data) == 0 || data[0] != deletedRangeVersion {
		return deletedRange{}, errors.New("unknown version")
	}
	dec := proposal.Decoder{Data: data[1:]}
	d := deletedRange{timestamp: dec.Timestamp(), count: dec.Uvarint()}
	if dec.Bad || len(dec.Data) == 0 || dec.Data[0]&^(deletedMore|deletedWaited) != 0 {
		return deletedRange{}, errors.New("malformed")
	}
	d.more, d.waited = dec.Data[0]&deletedMore != 0, dec.Data[0]&deletedWaited != 0
	if rest := dec.Data[1:]; len(rest) > 0 {
		d.resume = append([]byte(nil), rest...)
	}
	return d, nil
}

func readDeletedRange(r *Replica, key []byte) (d deletedRange, found bool, err error) {
	value, closer, err := r.state.Get(key)
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
