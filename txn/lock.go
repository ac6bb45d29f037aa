package txn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Lock is stored beside a key that a transaction writes, from the transaction's Prepare until it is
// resolved.
type Lock struct {
	Transaction Info
	// Kind is PUT, DELETE or LOCK, never UNLOCK.
	Kind kvpb.Mutation_Kind
	// Prepared is the lowest timestamp at which the key may be committed.
	Prepared hlc.Timestamp
	// Request is the Prepare that acquired the lock; the version gets its id.
	Request keys.RequestID
	// Acquired is when Request acquired the lock, in nanoseconds since the epoch, by the physical
	// clock of the partition's leader.
	Acquired int64
	// Lifetime is the lifetime of the value of a PUT; a time to live counts from the commit
	// timestamp. DefaultLifetime and Forever mean the same: the value does not expire; DecodeLock
	// returns DefaultLifetime.
	Lifetime keys.Lifetime
	// Value is the value of a PUT; empty for other kinds.
	Value []byte
}

// lockVersion is the first byte of a stored Lock, lockVersionTTL that of a Lock with a time to
// live, and lockVersionUntil that of a Lock whose value expires at a given time:
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
//	ttl                uvarint, nanoseconds, not 0; in version 2
//	until              uvarint, wall time in nanoseconds, above 1; in version 3
//	value              the rest
const (
	lockVersion      = 1
	lockVersionTTL   = 2
	lockVersionUntil = 3
)

// Append encodes the lock. DecodeLock must accept the fields.
func (l *Lock) Append(dst []byte) []byte {
	version, lives := byte(lockVersion), uint64(0)
	if l.Kind != kvpb.Mutation_PUT {
		// Only a PUT has a lifetime.
	} else if until, ok := l.Lifetime.Moment(); ok {
		version, lives = lockVersionUntil, uint64(until)
	} else if l.Lifetime > 0 {
		version, lives = lockVersionTTL, uint64(l.Lifetime)
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
	if version != lockVersion {
		dst = binary.AppendUvarint(dst, lives)
	}
	return append(dst, l.Value...)
}

// DecodeLock is the reverse of Append. Only the value aliases data. Its errors do not name the key.
func DecodeLock(data []byte) (Lock, error) {
	d, err := begin(data, lockVersionUntil)
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
	switch d.version {
	case lockVersionTTL:
		l.Lifetime = keys.Lifetime(d.number("time to live", uint64(keys.MaxTTL)))
		if l.Lifetime == keys.DefaultLifetime {
			d.fail("no time to live")
		}
	case lockVersionUntil:
		until := int64(d.number("expiry", math.MaxInt64))
		if l.Lifetime = keys.Until(until); until <= 1 {
			d.fail("no expiry")
		}
	}
	if l.Kind != kvpb.Mutation_PUT {
		// Earlier versions wrote deletions and locks with the default time to live of their
		// keyspace, which has no meaning there.
		l.Lifetime = keys.DefaultLifetime
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
	default:
		return fmt.Errorf("unknown kind %d", l.Kind)
	}
	if l.Prepared.IsZero() {
		return errors.New("no prepared timestamp")
	}
	return nil
}
