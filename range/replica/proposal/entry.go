package proposal

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// entryVersion is the first byte of every entry. A replica that meets a higher version stops
// applying: it must not guess what its peers did. In version 1 only a leader that handed over
// closed timestamps with a write.
const entryVersion, entryVersion1 = 2, 1

// Flags in the byte of the kind.
const (
	handsOver = 0x80
	// hasExpiring marks an entry that changes the number of versions with an expiry.
	hasExpiring = 0x40
	kindFlags   = handsOver | hasExpiring
)

// Kind says what an entry may contain.
type Kind byte

const (
	// KindWrite sets versions, and anchored records that are not a transaction's.
	KindWrite Kind = 1
	// KindThreshold raises the garbage collection threshold; it has no batch.
	KindThreshold Kind = 2
	// KindRemove deletes versions and anchored records that no read at or above the threshold can
	// see.
	KindRemove Kind = 3
	// KindDescriptor sets the descriptor.
	KindDescriptor Kind = 4
	// KindTransaction is KindWrite that may also set and delete locks, and set transaction records.
	KindTransaction Kind = 5
	// KindSplit sets the descriptor of the remaining partition, and the descriptor and the
	// statistics of the partition that splits off.
	KindSplit Kind = 6
	// KindFreeze sets the descriptor of a partition that is to be consumed by its left neighbour.
	KindFreeze Kind = 7
	// KindMerge sets the descriptor of a partition that consumes its right neighbour. It carries
	// the neighbour's descriptor and applied record.
	KindMerge Kind = 8
	// KindLoad sets versions of many records at one timestamp. It carries a Load instead of a
	// batch.
	KindLoad Kind = 9
)

// Delta is the change of a partition's statistics by an entry. Evaluation computes it, so that all
// replicas count alike.
type Delta struct {
	LiveKeys, Versions, Bytes int64
	// Expiring counts versions with an expiry.
	Expiring int64
}

// Add adds another change.
func (d *Delta) Add(other Delta) {
	d.LiveKeys += other.LiveKeys
	d.Versions += other.Versions
	d.Bytes += other.Bytes
	d.Expiring += other.Expiring
}

// Entry is the content of one entry of the partition's log.
//
//	version  1 byte
//	kind     1 byte; its highest bits: the leader hands over; expiring is present
//	proposer, sequence, base          uvarint each
//	highest, closed, threshold        wall and logical, uvarint each
//	live keys, versions, bytes        varint each
//	expiring                          varint, not 0; only if the kind says so
//	batch                             the rest: a Pebble batch, or nothing
type Entry struct {
	Kind     Kind
	Proposer keys.ReplicaID
	// Sequence numbers the proposals of a replica, from 1 upwards while it is open.
	Sequence uint64
	// Base is the sequence of the entry on which this one was evaluated: the one before it in the
	// same term, 0 for the first of a term. An entry takes effect only if its base was the last
	// entry that did.
	Base uint64
	// Highest is at or above every timestamp in the batch, including the prepared timestamps of
	// locks.
	Highest hlc.Timestamp
	// Closed is the timestamp that the entry closes: nothing at or below it is written or locked
	// after the entry; zero closes nothing. Entries of a hand-over, split or merge close what was
	// read; any other entry closes a timestamp that lies a while behind the leader's clock.
	Closed hlc.Timestamp
	// HandsOver marks the last entry of a leader that hands over and has heard each heartbeat that can
	// matter (leadership.State.HeardAll); Highest is the time of that.
	HandsOver bool
	// Threshold is the garbage collection threshold that the entry sets, if it is above the present
	// one.
	Threshold hlc.Timestamp
	Delta     Delta
	// Batch is the representation of a Pebble batch, empty if the entry writes nothing. After
	// decoding it aliases the entry.
	Batch []byte
}

// maxHeader is an upper bound of the encoded length without the batch.
const maxHeader = 2 + 13*binary.MaxVarintLen64

// Encode returns the entry in the form of the log.
func (e *Entry) Encode() []byte {
	dst := make([]byte, 0, maxHeader+len(e.Batch))
	kind := byte(e.Kind)
	if e.HandsOver {
		kind |= handsOver
	}
	if e.Delta.Expiring != 0 {
		kind |= hasExpiring
	}
	dst = append(dst, entryVersion, kind)
	dst = binary.AppendUvarint(dst, uint64(e.Proposer))
	dst = binary.AppendUvarint(dst, e.Sequence)
	dst = binary.AppendUvarint(dst, e.Base)
	dst = AppendTimestamp(dst, e.Highest)
	dst = AppendTimestamp(dst, e.Closed)
	dst = AppendTimestamp(dst, e.Threshold)
	dst = binary.AppendVarint(dst, e.Delta.LiveKeys)
	dst = binary.AppendVarint(dst, e.Delta.Versions)
	dst = binary.AppendVarint(dst, e.Delta.Bytes)
	if e.Delta.Expiring != 0 {
		dst = binary.AppendVarint(dst, e.Delta.Expiring)
	}
	return append(dst, e.Batch...)
}

// ErrMalformed is wrapped by every decoding error. A replica that meets one has failed.
var ErrMalformed = errors.New("malformed replicated command")

// KindOf returns the kind of an encoded entry without reading the rest; 0 if it has none.
func KindOf(data []byte) Kind {
	if len(data) < 2 {
		return 0
	}
	return Kind(data[1] &^ kindFlags)
}

// Decode reads an entry. It checks only that the batch is a batch: see WalkBatch.
func Decode(data []byte) (Entry, error) {
	var e Entry
	if len(data) < 2 {
		return e, fmt.Errorf("%w: %d bytes", ErrMalformed, len(data))
	}
	if data[0] != entryVersion && data[0] != entryVersion1 {
		return e, fmt.Errorf("%w: version %d, this server understands %d; was it written by "+
			"a newer one?",
			ErrMalformed, data[0], entryVersion)
	}
	e.Kind, e.HandsOver = Kind(data[1]&^kindFlags), data[1]&handsOver != 0
	if e.Kind < KindWrite || e.Kind > KindLoad {
		return e, fmt.Errorf("%w: unknown kind %d", ErrMalformed, data[1])
	}
	d := Decoder{Data: data[2:]}
	e.Proposer = keys.ReplicaID(d.Uvarint())
	e.Sequence = d.Uvarint()
	e.Base = d.Uvarint()
	e.Highest = d.Timestamp()
	e.Closed = d.Timestamp()
	e.Threshold = d.Timestamp()
	e.Delta.LiveKeys = d.Varint()
	e.Delta.Versions = d.Varint()
	e.Delta.Bytes = d.Varint()
	if data[1]&hasExpiring != 0 {
		if e.Delta.Expiring = d.Varint(); e.Delta.Expiring == 0 {
			d.fail()
		}
	}
	if d.Bad {
		return e, fmt.Errorf("%w: its header is cut off or out of range", ErrMalformed)
	}
	e.Batch = d.Data
	if data[0] == entryVersion1 {
		e.HandsOver = e.Kind == KindWrite && !e.Closed.IsZero()
	}
	switch {
	case e.HandsOver && e.Kind != KindWrite:
		return e, fmt.Errorf("%w: an entry of kind %d that hands over", ErrMalformed, e.Kind)
	case e.Proposer == 0 || e.Sequence == 0 || e.Base >= e.Sequence:
		return e, fmt.Errorf("%w: proposer %d, sequence %d, base %d",
			ErrMalformed, e.Proposer, e.Sequence, e.Base)
	case len(e.Batch) > 0 && len(e.Batch) < batchHeaderLength && e.Kind != KindLoad:
		return e, fmt.Errorf("%w: a batch of %d bytes", ErrMalformed, len(e.Batch))
	case e.Kind == KindThreshold && len(e.Batch) > 0:
		return e, fmt.Errorf("%w: a batch where none belongs", ErrMalformed)
	case e.Kind != KindThreshold && !e.Threshold.IsZero():
		return e, fmt.Errorf("%w: a threshold where none belongs", ErrMalformed)
	}
	return e, nil
}
