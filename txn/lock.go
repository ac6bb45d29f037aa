package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Lock is what is stored of a transaction beside a key that it writes, from its Prepare until it is
// resolved.
type Lock struct {
	Transaction Info
	// Kind is PUT, DELETE or LOCK, never UNLOCK.
	Kind kvpb.Mutation_Kind
	// Prepared is the lowest timestamp at which the key may be committed.
	Prepared hlc.Timestamp
	// Request is the Prepare that acquired it; the version gets it.
	Request keys.RequestID
	// Acquired is when, in nanoseconds since the epoch, by the physical clock of the partition's
	// leader.
	Acquired int64
	// TTL is how long the value of a PUT lives from the commit timestamp on; 0: it does not expire.
	TTL time.Duration
	// Value is what a PUT writes; else it is empty.
	Value []byte
}

// lockVersion is the first byte of a stored Lock, and lockVersionTTL that of one with a time to
// live:
//
//	version            1 byte
//	kind               1 byte: Mutation_Kind + 1
//	id                 16 bytes
//	begun, started     wall and logical, uvarint each
//	keyspace           uvarint
//	anchor             uvarint length, bytes
//	prepared           wall and logical, uvarint each
//	client, sequence   uvarint each
//	acquired           uvarint
//	ttl                uvarint, nanoseconds, not 0; from version 2 on
//	value              the rest
const (
	lockVersion    = 1
	lockVersionTTL = 2
)

// Append encodes the lock. The fields must be such as Decode accepts.
func (l *Lock) Append(dst []byte) []byte {
	version := byte(lockVersion)
	if l.TTL != 0 {
		version = lockVersionTTL
	}
	dst = append(dst, version, byte(l.Kind)+1)
	dst = append(dst, l.Transaction.ID[:]...)
	dst = appendTimestamp(dst, l.Transaction.Begun)
	dst = appendTimestamp(dst, l.Transaction.Started)
	dst = binary.AppendUvarint(dst, uint64(l.Transaction.Keyspace))
	dst = appendBytes(dst, l.Transaction.Anchor)
	dst = appendTimestamp(dst, l.Prepared)
	dst = binary.AppendUvarint(dst, l.Request.Client)
	dst = binary.AppendUvarint(dst, l.Request.Sequence)
	dst = binary.AppendUvarint(dst, uint64(l.Acquired))
	if l.TTL != 0 {
		dst = binary.AppendUvarint(dst, uint64(l.TTL))
	}
	return append(dst, l.Value...)
}

// DecodeLock is the reverse of Append. The value aliases data, all else does not. Its errors do not
// name the key.
func DecodeLock(data []byte) (Lock, error) {
	d, err := begin(data, lockVersionTTL)
	if err != nil {
		return Lock{}, fmt.Errorf("lock: %w", err)
	}
	kind := d.byte("kind")
	l := Lock{Kind: kvpb.Mutation_Kind(kind) - 1}
	l.Transaction.ID = d.id()
	l.Transaction.Begun, l.Transaction.Started = d.timestamp("begun"), d.timestamp("started")
	l.Transaction.Keyspace = keys.KeyspaceID(d.number("keyspace", 1<<32-1))
	l.Transaction.Anchor = append([]byte(nil), d.bytes("anchor", keys.MaxKeySize)...)
	l.Prepared = d.timestamp("prepared timestamp")
	l.Request = keys.RequestID{Client: d.number("client", 1<<64-1),
		Sequence: d.number("sequence", 1<<64-1)}
	l.Acquired = int64(d.number("time", 1<<63-1))
	if d.version == lockVersionTTL {
		if l.TTL = time.Duration(d.number("time to live", uint64(keys.MaxTTL))); l.TTL == 0 {
			d.fail("no time to live")
		}
	}
	l.Value = d.rest()
	if d.err == nil {
		d.err = l.validate()
	}
	if d.err != nil {
		return Lock{}, fmt.Errorf("lock: %w", d.err)
	}
	return l, nil
}

func (l *Lock) validate() error {
	if err := l.Transaction.validate(); err != nil {
		return err
	}
	switch l.Kind {
	case kvpb.Mutation_PUT:
		if err := keys.ValidateValue(l.Value); err != nil {
			return err
		}
	case kvpb.Mutation_DELETE, kvpb.Mutation_LOCK:
		if len(l.Value) > 0 {
			return fmt.Errorf("a %s with a value of %d bytes", l.Kind, len(l.Value))
		}
		if l.TTL != 0 {
			return fmt.Errorf("a %s with a time to live", l.Kind)
		}
	default:
		return fmt.Errorf("unknown kind %d", l.Kind)
	}
	if l.Prepared.IsZero() {
		return errors.New("no prepared timestamp")
	}
	return nil
}
