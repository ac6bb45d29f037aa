package storage

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

// ErrRecord means that a stored record is damaged.
var ErrRecord = errors.New("a stored record is damaged")

// IsDamage reports that an error comes from damaged stored data.
func IsDamage(err error) bool {
	return engine.IsCorruption(err) || errors.Is(err, mvcc.ErrCorrupt) || errors.Is(err, ErrRecord)
}

// Stats is the size of a partition, which every replica keeps exactly.
type Stats struct {
	// LiveKeys is the number of keys whose newest version is a value. An expired value counts until
	// garbage collection removes it: counts must not depend on a clock.
	LiveKeys uint64
	// Versions is the number of versions of all keys, tombstones included.
	Versions uint64
	// Bytes is the length of the state keys and values of all versions, without headers and before
	// compression.
	Bytes uint64
	// Expiring is the number of versions with an expiry, expired or not.
	Expiring uint64
}

// Record is the applied record of a partition. It is written in the batch of the changes that it
// describes, and is the same on every replica that has applied the same index.
type Record struct {
	// Index and Term are those of the last applied entry.
	Index, Term uint64
	// CommandTerm and Sequence are those of the last entry that took effect: the next entry must
	// have this sequence as its base.
	CommandTerm, Sequence uint64
	// Highest is at or above the timestamp of every version.
	Highest hlc.Timestamp
	// Closed is below the timestamp of every version that is yet to be written.
	Closed hlc.Timestamp
	// Threshold is the garbage collection threshold: no version below it can be read.
	Threshold hlc.Timestamp
	Stats     Stats
}

// The first byte of a record is appliedVersion, or appliedVersionExpiring if the partition holds
// versions with an expiry.
const (
	appliedVersion         = 1
	appliedVersionExpiring = 2
)

// MaxRecord is an upper bound on the encoded length.
const MaxRecord = 1 + 14*binary.MaxVarintLen64

func (a *Record) Append(dst []byte) []byte {
	version := byte(appliedVersion)
	if a.Stats.Expiring != 0 {
		version = appliedVersionExpiring
	}
	dst = append(dst, version)
	for _, v := range [...]uint64{a.Index, a.Term, a.CommandTerm, a.Sequence} {
		dst = binary.AppendUvarint(dst, v)
	}
	dst = proposal.AppendTimestamp(dst, a.Highest)
	dst = proposal.AppendTimestamp(dst, a.Closed)
	dst = proposal.AppendTimestamp(dst, a.Threshold)
	for _, v := range [...]uint64{a.Stats.LiveKeys, a.Stats.Versions, a.Stats.Bytes} {
		dst = binary.AppendUvarint(dst, v)
	}
	if a.Stats.Expiring != 0 {
		dst = binary.AppendUvarint(dst, a.Stats.Expiring)
	}
	return dst
}

func DecodeApplied(data []byte) (Record, error) {
	var a Record
	if len(data) == 0 || data[0] < appliedVersion || data[0] > appliedVersionExpiring {
		return a, fmt.Errorf("applied record: %w: unknown version; was it written by a newer server?",
			ErrRecord)
	}
	d := proposal.Decoder{Data: data[1:]}
	for _, v := range [...]*uint64{&a.Index, &a.Term, &a.CommandTerm, &a.Sequence} {
		*v = d.Uvarint()
	}
	a.Highest = d.Timestamp()
	a.Closed = d.Timestamp()
	a.Threshold = d.Timestamp()
	for _, v := range [...]*uint64{&a.Stats.LiveKeys, &a.Stats.Versions, &a.Stats.Bytes} {
		*v = d.Uvarint()
	}
	if data[0] == appliedVersionExpiring {
		if a.Stats.Expiring = d.Uvarint(); a.Stats.Expiring == 0 {
			d.Bad = true
		}
	}
	if d.Bad || len(d.Data) > 0 {
		return a, fmt.Errorf("applied record: %w", ErrRecord)
	}
	return a, nil
}

// ReadApplied reads the record of a partition; ok is false if there is none.
func ReadApplied(r engine.Reader, id keys.PartitionID) (a Record, ok bool, err error) {
	value, closer, err := r.Get(keys.LocalKey(id, keys.SuffixApplied))
	if errors.Is(err, pebble.ErrNotFound) {
		return a, false, nil
	}
	if err != nil {
		return a, false, fmt.Errorf("partition %s: reading the applied index: %w", id, err)
	}
	defer closer.Close()
	if a, err = DecodeApplied(value); err != nil {
		return a, false, fmt.Errorf("partition %s: %w", id, err)
	}
	return a, true, nil
}

// Accepts reports whether an entry of the given term takes effect. All replicas decide alike.
//
// INVARIANT: an entry takes effect only if everything that it was evaluated on does. A leader
// evaluates writes on top of others that are proposed and not yet applied. Raft may drop one of
// those and accept the next (during a leadership transfer that then fails, for example); an entry
// that was evaluated on top of the lost one must then be lost with it.
func (a *Record) Accepts(term uint64, p *proposal.Entry) bool {
	if a.CommandTerm == term {
		return p.Base == a.Sequence
	}
	return p.Base == 0
}

// Advance brings the record to the state after an entry that takes effect. An error means that an
// invariant is broken.
func (a *Record) Advance(term uint64, p *proposal.Entry) error {
	a.CommandTerm, a.Sequence = term, p.Sequence
	a.Highest = hlc.Max(a.Highest, p.Highest)
	a.Closed = hlc.Max(a.Closed, p.Closed)
	a.Threshold = hlc.Max(a.Threshold, p.Threshold)
	for _, f := range [...]struct {
		total *uint64
		delta int64
		name  string
	}{
		{&a.Stats.LiveKeys, p.Delta.LiveKeys, "live keys"},
		{&a.Stats.Versions, p.Delta.Versions, "versions"},
		{&a.Stats.Bytes, p.Delta.Bytes, "bytes"},
		{&a.Stats.Expiring, p.Delta.Expiring, "versions with an expiry"},
	} {
		if f.delta < 0 && uint64(-f.delta) > *f.total {
			return fmt.Errorf("%w: it takes %d from %d %s", proposal.ErrMalformed, -f.delta, *f.total,
				f.name)
		}
		*f.total += uint64(f.delta)
	}
	return nil
}
