package command

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// What a DeleteRange has done is recorded beside the versions, anchored at the start of the span:
// without a record, each first attempt would have to look through all versions of the span above
// its session's timestamp to know that it is the first. The record is collected as versions are. An
// attempt that finds nothing to delete leaves none.

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
	return append(append(dst, flags), d.resume...)
}

// decodeDeletedRange reads what append wrote.
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

// DeletedRangeAt is the timestamp of a stored record of a DeleteRange. The record may go when
// garbage collection has come so far.
func DeletedRangeAt(value []byte) (hlc.Timestamp, error) {
	d, err := decodeDeletedRange(value)
	return d.timestamp, err
}
