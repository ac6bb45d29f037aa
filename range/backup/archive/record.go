package archive

import (
	"bytes"
	"fmt"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// RecordKind says what a version of a key is.
type RecordKind uint8

const (
	// Value is a version with a value.
	Value RecordKind = iota
	// Tombstone is a version that deletes the key.
	Tombstone
)

// MaxKey is the length of the longest key, in bytes: four bytes for the id of a keyspace, two for a
// hash number, and the longest user key.
const MaxKey = keys.MaxKeySize + 6

// Record is one version of a key.
type Record struct {
	// Key is the user key.
	Key []byte
	// Timestamp is the timestamp of the version.
	Timestamp hlc.Timestamp
	Kind      RecordKind
	// Expiry is the time at which the value expires, in nanoseconds since the Unix epoch. Zero means
	// that the value never expires. A tombstone has no expiry.
	Expiry int64
	// Value is empty for a tombstone.
	Value []byte
}

// Flags of a record.
const (
	flagTombstone = 1 << iota
	flagExpiry
	flagLogical
	flagSameKey
	flagsKnown = flagTombstone | flagExpiry | flagLogical | flagSameKey
)

// sequence checks that each record is within the bounds of the piece's header and in the right
// order after the record before. A Writer and a Reader have one sequence each.
type sequence struct {
	header Header
	// key and timestamp belong to the record before. They are set if begun is.
	key       []byte
	timestamp hlc.Timestamp
	begun     bool
}

// check returns an error if the next record is not allowed. The error wraps nothing but wrong or
// ErrOrder.
func (s *sequence) check(r *Record, wrong error) error {
	switch {
	case len(r.Key) > MaxKey:
		return fmt.Errorf("%w: a key has %d bytes; %d is the limit", wrong, len(r.Key), MaxKey)
	case len(r.Value) > keys.MaxValueSize:
		return fmt.Errorf("%w: the value of %.80q has %d bytes; %d is the limit", wrong, r.Key,
			len(r.Value), keys.MaxValueSize)
	case r.Kind > Tombstone:
		return fmt.Errorf("%w: the kind of %.80q is %d", wrong, r.Key, r.Kind)
	case r.Kind == Tombstone && (len(r.Value) > 0 || r.Expiry != 0):
		return fmt.Errorf("%w: the tombstone of %.80q has a value or an expiry", wrong, r.Key)
	case r.Expiry < 0:
		return fmt.Errorf("%w: the expiry of %.80q is %d", wrong, r.Key, r.Expiry)
	case !s.header.contains(r.Key):
		return fmt.Errorf("%w: the key %.80q is outside of the span from %.80q to %.80q", wrong, r.Key,
			s.header.Start, s.header.End)
	case r.Timestamp.Wall < 0 || r.Timestamp.LessEq(s.header.After) || s.header.At.Less(r.Timestamp):
		return fmt.Errorf("%w: the version of %.80q at %v is not after %v, and at most at %v", wrong,
			r.Key, r.Timestamp, s.header.After, s.header.At)
	}
	if s.begun {
		order := bytes.Compare(s.key, r.Key)
		if order > 0 || order == 0 && s.timestamp.LessEq(r.Timestamp) {
			if wrong == ErrInvalid {
				wrong = ErrOrder
			}
			return fmt.Errorf("%w: %.80q at %v comes after %.80q at %v", wrong, r.Key, r.Timestamp, s.key,
				s.timestamp)
		}
	}
	return nil
}

// follow stores a record as the record before.
func (s *sequence) follow(r *Record) {
	s.key, s.timestamp, s.begun = append(s.key[:0], r.Key...), r.Timestamp, true
}

// wall is the wall time that the wall time of the next record is stored relative to.
func (s *sequence) wall() int64 {
	if s.begun {
		return s.timestamp.Wall
	}
	return s.header.At.Wall
}

// shared is the length of the longest common prefix of two keys.
func shared(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// recordOverhead is larger than the space that a record needs in a payload beside its key and
// value.
const recordOverhead = 64
