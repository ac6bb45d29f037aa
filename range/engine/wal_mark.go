package engine

import (
	"encoding/binary"

	"github.com/cockroachdb/pebble/v2"
)

// walMark is at the beginning of every batch of the Log, in the WAL only (Pebble calls this log
// data). It holds the batch's number since the log was opened, and the highest number known to be
// synced when the batch was committed. With it verify tells a damaged WAL from one that a crash cut
// short.
//
// INVARIANT: batches stand in the WAL in the order of their numbers (Log.order), so one synced
// batch means that all with lower numbers are synced.
type walMark struct {
	sequence, synced uint64
}

const (
	markSize = 16
	// A batch starts with Pebble's header of 12 bytes. The entry of the mark follows, with its kind
	// and its length.
	markKindOffset   = 12
	markLengthOffset = markKindOffset + 1
	markOffset       = markKindOffset + 2
)

// addMark reserves space for the mark in an empty batch.
func addMark(b *pebble.Batch) {
	var empty [markSize]byte
	// LogData fails only if the batch is too large.
	_ = b.LogData(empty[:], nil)
}

// hasMark reports whether an encoded batch has space for a mark.
func hasMark(batch []byte) bool {
	return len(batch) >= markOffset+markSize &&
		batch[markKindOffset] == byte(pebble.InternalKeyKindLogData) &&
		batch[markLengthOffset] == markSize
}

func readMark(batch []byte) (walMark, bool) {
	if !hasMark(batch) {
		return walMark{}, false
	}
	return walMark{
		sequence: binary.LittleEndian.Uint64(batch[markOffset:]),
		synced:   binary.LittleEndian.Uint64(batch[markOffset+8:]),
	}, true
}

func (m walMark) write(batch []byte) {
	if !hasMark(batch) {
		return
	}
	binary.LittleEndian.PutUint64(batch[markOffset:], m.sequence)
	binary.LittleEndian.PutUint64(batch[markOffset+8:], m.synced)
}
