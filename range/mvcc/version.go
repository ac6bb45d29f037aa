package mvcc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/cockroachdb/pebble/v2/cockroachkvs"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// ErrCorrupt is returned for stored data that is not a valid version. The error names the key.
var ErrCorrupt = errors.New("stored version is corrupt")

// Kind is the kind of a version.
type Kind uint8

// The kinds. They are stored. 0 is not a kind, so that a zeroed header is detected.
const (
	// KindValue is a version with a value.
	KindValue Kind = 1
	// KindTombstone is a deletion: the key has no value from this timestamp on.
	KindTombstone Kind = 2
	// KindExpired is the kind that a read returns for a version whose value has expired at the
	// read's timestamp. It is not stored.
	KindExpired Kind = 3
)

func (k Kind) String() string {
	switch k {
	case KindValue:
		return "value"
	case KindTombstone:
		return "tombstone"
	case KindExpired:
		return "expired value"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// RequestID identifies a client's request.
type RequestID = keys.RequestID

// Version is one version of a key.
type Version struct {
	Timestamp hlc.Timestamp
	Kind      Kind
	// Request is the request that wrote the version.
	Request RequestID
	// CommitWait is set if the version was written with commit wait, and must not be seen before
	// every clock has passed its timestamp.
	CommitWait bool
	// Expires is the wall time from which on the key has no value; 0 means never. See expiry.go.
	Expires int64
	// Value is empty for a tombstone, and for an expired value. The function that returns the
	// Version says how long it is valid.
	Value []byte
}

// Header is the fixed part of the stored form of a version:
//
//	1 byte   kind; the upper four bits are for flags, from the lowest: CommitWait, Extended, 0, 0
//	8 bytes  client, big endian
//	uvarint  sequence, in its shortest form
//
// If Extended is set, more fields follow, according to their version:
//
//	1 byte   version of the fields: 1
//	uvarint  version 1: Expires, in its shortest form, above 0; only of a value
//
// A new field needs a new version of the fields, which also has all earlier fields. A header
// without such fields is not extended.
//
// The value takes the remaining bytes. The header has no checksum: Pebble protects data on disk,
// and the log protects data from Raft.
type Header struct {
	Kind    Kind
	Request RequestID
	// CommitWait and Expires are as in Version.
	CommitWait bool
	Expires    int64
}

// The flags in the first byte.
const (
	flagCommitWait = 0x10
	flagExtended   = 0x20
)

// fieldsVersion is the version of the fields of an extended header.
const fieldsVersion = 1

// size is the length of the encoded header, in bytes.
func (h Header) size() int {
	n := 1 + 8 + uvarintSize(h.Request.Sequence)
	if h.Expires != 0 {
		n += 1 + uvarintSize(uint64(h.Expires))
	}
	return n
}

// Append encodes the header.
func (h Header) Append(dst []byte) []byte {
	first := byte(h.Kind)
	if h.CommitWait {
		first |= flagCommitWait
	}
	if h.Expires != 0 {
		first |= flagExtended
	}
	dst = append(dst, first)
	dst = binary.BigEndian.AppendUint64(dst, h.Request.Client)
	dst = binary.AppendUvarint(dst, h.Request.Sequence)
	if h.Expires != 0 {
		dst = binary.AppendUvarint(append(dst, fieldsVersion), uint64(h.Expires))
	}
	return dst
}

// DecodeHeader splits the stored form of a version into header and value, which aliases the
// argument. Its errors do not name the key.
func DecodeHeader(stored []byte) (Header, []byte, error) {
	if len(stored) < 1+8+1 {
		return Header{}, nil, fmt.Errorf("%d bytes are too few for a header", len(stored))
	}
	h := Header{Kind: Kind(stored[0] &^ (flagCommitWait | flagExtended)),
		CommitWait: stored[0]&flagCommitWait != 0,
		Request:    RequestID{Client: binary.BigEndian.Uint64(stored[1:])}}
	if h.Kind != KindValue && h.Kind != KindTombstone {
		return Header{}, nil, fmt.Errorf("unknown %v", Kind(stored[0]))
	}
	rest := stored[9:]
	n := 1
	if rest[0] < 0x80 {
		h.Request.Sequence = uint64(rest[0])
	} else if h.Request.Sequence, n = binary.Uvarint(rest); n <= 0 ||
		n != uvarintSize(h.Request.Sequence) {
		return Header{}, nil, errors.New("malformed sequence number")
	}
	value := rest[n:]
	if stored[0]&flagExtended != 0 {
		var err error
		if value, err = h.decodeFields(value); err != nil {
			return Header{}, nil, err
		}
	}
	if h.Kind == KindTombstone && len(value) > 0 {
		return Header{}, nil, fmt.Errorf("a tombstone with a value of %d bytes", len(value))
	}
	return h, value, nil
}

// decodeFields decodes the fields of an extended header, and returns the rest.
func (h *Header) decodeFields(data []byte) (rest []byte, err error) {
	if len(data) == 0 || data[0] != fieldsVersion {
		return nil, errors.New("unknown version of its fields; was it written by a newer server?")
	}
	expires, n := binary.Uvarint(data[1:])
	if n <= 0 || n != uvarintSize(expires) || expires == 0 || expires > math.MaxInt64 {
		return nil, errors.New("malformed expiry")
	}
	if h.Kind != KindValue {
		return nil, fmt.Errorf("a %v with an expiry", h.Kind)
	}
	h.Expires = int64(expires)
	return data[1+n:], nil
}

func uvarintSize(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// Write adds a version of either kind to the batch. The arguments are copied; a tombstone must have
// no value.
func Write(b *engine.StateBatch, key []byte, ts hlc.Timestamp, h Header, value []byte) error {
	if ts.Wall < 0 || ts.IsZero() {
		return fmt.Errorf("write %s at %s: not a timestamp for a version", keys.Pretty(key), ts)
	}
	if h.Expires < 0 || h.Expires != 0 && h.Kind != KindValue {
		return fmt.Errorf("write %s at %s: a %v cannot expire at %d", keys.Pretty(key), ts, h.Kind,
			h.Expires)
	}
	// Deferred, so that key and value are encoded in the batch's own memory.
	op := b.SetDeferred(keys.VersionedKeySize(key, ts), h.size()+len(value))
	keys.AppendTimestamp(keys.AppendDataKey(op.Key[:0], key), ts)
	h.Append(op.Value[:0])
	copy(op.Value[h.size():], value)
	if err := op.Finish(); err != nil {
		return fmt.Errorf("write %s at %s: %w", keys.Pretty(key), ts, err)
	}
	return nil
}

// corrupt returns ErrCorrupt with the key and the cause.
func corrupt(stateKey []byte, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorrupt, keys.PrettyState(stateKey), err)
}

// dataPrefix is the part of a versioned or unversioned data key that all versions of the key share:
// the unversioned key. It aliases the argument, which must be a state key.
func dataPrefix(stateKey []byte) []byte { return stateKey[:cockroachkvs.Split(stateKey)] }
