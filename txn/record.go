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

// Record is what the coordinator stores of a transaction. A Record never changes: a decision makes
// a new Record.
type Record struct {
	State kvpb.TransactionState
	// Timestamp is the commit timestamp of a COMMITTED transaction. A PENDING transaction can only
	// commit above it; zero is no bound.
	Timestamp hlc.Timestamp
	// Reason is why the transaction is ABORTED. If it was WOUNDED, Wounder is the transaction that
	// wounded it, and Wanted the key that Wounder wanted.
	Reason  kvpb.AbortReason
	Wounder ID
	Wanted  Wanted
	// Limit is the limit that an EXPIRED or IDLE transaction has exceeded, in whole milliseconds.
	Limit time.Duration
	// Begun and Started are as in Info.
	Begun, Started hlc.Timestamp
	// Heard is when the client last gave a sign of life: a heartbeat, or a lock that it acquired.
	// In nanoseconds since the epoch, by the coordinator's physical clock.
	Heard int64
	// Idle is how long the application of a PENDING transaction had made no call at the client's
	// last heartbeat, in whole milliseconds; zero if the client reported no idle time.
	Idle time.Duration
	// Finished is when the transaction was decided, above Started; zero while PENDING.
	Finished hlc.Timestamp
	// Participants hold every key that had an intent when the client ended the transaction. Either
	// all are spans, or all are Whole.
	Participants []Participant
	// CommitWait is set if the transaction was committed with commit wait: no client hears of it
	// before every clock has passed its timestamp.
	CommitWait bool
}

// The first byte of a stored Record is its version: recordOfKeys if its participants are Whole, or
// if it has none, and recordOfSpans if they are spans.
//
//	version            1 byte
//	state              1 byte: TransactionState + 1, and the bits recordCommitWait, recordWounder,
//	                   recordWanted and recordIdle
//	reason             1 byte
//	wounder            16 bytes, if recordWounder is set
//	wanted             uvarint keyspace, uvarint length, key, if recordWanted is set
//	limit              uvarint milliseconds, if the reason is EXPIRED or IDLE
//	idle               uvarint milliseconds, if recordIdle is set
//	timestamp, begun, started, finished   wall and logical, uvarint each
//	heard              uvarint
//	participants       uvarint count; for each uvarint keyspace, and
//	                   - recordOfKeys: uvarint length, key
//	                   - recordOfSpans: uvarint hash; uvarint length, first key; uvarint length,
//	                     last key, the length being 0 if the last key is the first key
const (
	recordOfKeys  = 1
	recordOfSpans = 2
)

// Bits in the byte of the state: recordCommitWait if Record.CommitWait is set, recordWounder if
// there is a Wounder, recordWanted if there is a Wanted, recordIdle if Idle is not zero.
const (
	recordCommitWait = 0x10
	recordWounder    = 0x20
	recordWanted     = 0x40
	recordIdle       = 0x80
	recordFlags      = recordCommitWait | recordWounder | recordWanted | recordIdle
)

// Append encodes the record. DecodeRecord must accept the fields.
func (r *Record) Append(dst []byte) []byte {
	state := byte(r.State) + 1
	if r.CommitWait {
		state |= recordCommitWait
	}
	if !r.Wounder.IsZero() {
		state |= recordWounder
	}
	if len(r.Wanted.Key) > 0 {
		state |= recordWanted
	}
	if r.Idle > 0 {
		state |= recordIdle
	}
	version := byte(recordOfKeys)
	if len(r.Participants) > 0 && !r.Participants[0].Whole() {
		version = recordOfSpans
	}
	dst = append(dst, version, state, byte(r.Reason))
	dst = append(dst, r.Wounder.Bytes()...)
	if len(r.Wanted.Key) > 0 {
		dst = appendBytes(binary.AppendUvarint(dst, uint64(r.Wanted.Keyspace)), r.Wanted.Key)
	}
	if limited(r.Reason) {
		dst = binary.AppendUvarint(dst, uint64(r.Limit.Milliseconds()))
	}
	if r.Idle > 0 {
		dst = binary.AppendUvarint(dst, uint64(r.Idle.Milliseconds()))
	}
	for _, t := range [...]hlc.Timestamp{r.Timestamp, r.Begun, r.Started, r.Finished} {
		dst = appendTimestamp(dst, t)
	}
	dst = binary.AppendUvarint(dst, uint64(r.Heard))
	dst = binary.AppendUvarint(dst, uint64(len(r.Participants)))
	for i := range r.Participants {
		dst = r.Participants[i].appendTo(dst, version)
	}
	return dst
}

// DecodeRecord is the reverse of Append. The result does not alias data. Its errors do not name the
// transaction.
func DecodeRecord(data []byte) (Record, error) {
	d, err := begin(data, recordOfSpans)
	if err != nil {
		return Record{}, fmt.Errorf("transaction record: %w", err)
	}
	state := d.byte("state")
	r := Record{
		State: kvpb.TransactionState(state&^recordFlags) - 1, CommitWait: state&recordCommitWait != 0,
		Reason: kvpb.AbortReason(d.byte("reason")),
	}
	if state&recordWounder != 0 {
		r.Wounder = d.id()
	}
	if state&recordWanted != 0 {
		r.Wanted.Keyspace = keys.KeyspaceID(d.number("keyspace of the wanted key", 1<<32-1))
		if r.Wanted.Key = append([]byte(nil),
			d.bytes("wanted key", MaxWantedKey)...); len(r.Wanted.Key) == 0 {
			d.fail("its wanted key is empty")
		}
	}
	if limited(r.Reason) {
		r.Limit = d.milliseconds("limit")
	}
	if state&recordIdle != 0 {
		if r.Idle = d.milliseconds("idle time"); r.Idle == 0 {
			d.fail("it is idle for no time")
		}
	}
	r.Timestamp = d.timestamp("timestamp")
	r.Begun, r.Started, r.Finished = d.timestamp("begun"), d.timestamp("started"),
		d.timestamp("finished")
	r.Heard = int64(d.number("time", 1<<63-1))
	n := d.number("number of participants", 1<<63-1)
	// Each participant takes at least two bytes, so the data bounds the memory.
	if n > uint64(len(d.data)/2) {
		d.fail("%d participants in %d bytes", n, len(d.data))
	} else if n > 0 {
		r.Participants = make([]Participant, 0, n)
	} else if d.version == recordOfSpans {
		d.fail("it has no participants, which is version %d", recordOfKeys)
	}
	for ; n > 0 && d.err == nil; n-- {
		r.Participants = append(r.Participants, d.participant(d.version))
	}
	if len(d.data) > 0 {
		d.fail("%d bytes too many", len(d.data))
	}
	if d.err == nil {
		d.err = r.Validate()
	}
	if d.err != nil {
		return Record{}, fmt.Errorf("transaction record: %w", d.err)
	}
	return r, nil
}

// Validate returns why DecodeRecord would not accept a record.
func (r *Record) Validate() error {
	if err := validateAge(r.Begun, r.Started); err != nil {
		return err
	}
	if r.CommitWait && r.State != kvpb.TransactionState_COMMITTED {
		return errors.New("not committed, and yet with commit wait")
	}
	if !r.Wounder.IsZero() && r.Reason != kvpb.AbortReason_WOUNDED {
		return errors.New("not wounded, and yet by a transaction")
	}
	if len(r.Wanted.Key) > 0 && r.Reason != kvpb.AbortReason_WOUNDED {
		return errors.New("not wounded, and yet over a key")
	}
	if r.Idle > 0 && r.State != kvpb.TransactionState_PENDING {
		return errors.New("decided, and yet idle")
	}
	switch r.State {
	case kvpb.TransactionState_PENDING:
		if !r.Finished.IsZero() || len(r.Participants) > 0 || r.Reason != kvpb.AbortReason_NO_REASON {
			return errors.New("pending, and yet finished")
		}
		return nil
	case kvpb.TransactionState_COMMITTED:
		if r.Timestamp.IsZero() || r.Reason != kvpb.AbortReason_NO_REASON {
			return errors.New("committed without a timestamp, or with a reason to abort")
		}
	case kvpb.TransactionState_ABORTED:
		switch r.Reason {
		case kvpb.AbortReason_ROLLED_BACK, kvpb.AbortReason_WOUNDED, kvpb.AbortReason_ABANDONED,
			kvpb.AbortReason_EXPIRED, kvpb.AbortReason_IDLE, kvpb.AbortReason_REQUESTED:
		default:
			return fmt.Errorf("aborted for an unknown reason %d", r.Reason)
		}
		if !r.Timestamp.IsZero() {
			return errors.New("aborted, and yet with a timestamp")
		}
	default:
		return fmt.Errorf("unknown state %d", r.State)
	}
	if r.Finished.LessEq(r.Started) {
		return fmt.Errorf("finished at %s, not after it started at %s", r.Finished, r.Started)
	}
	return validateParticipants(r.Participants)
}

// limited reports whether a reason to abort comes with a limit.
func limited(reason kvpb.AbortReason) bool {
	return reason == kvpb.AbortReason_EXPIRED || reason == kvpb.AbortReason_IDLE
}

// Decided reports whether the record says COMMITTED or ABORTED, which never changes. A nil record
// is not decided.
func (r *Record) Decided() bool { return r != nil && r.State != kvpb.TransactionState_PENDING }

// Collectible reports whether garbage collection may remove the record: it is decided, every
// request that would make it anew is refused under that threshold, and no lock needs its outcome
// any more. resolved is set if all partitions of its participants were found to have no lock of the
// transaction any more; locks of an aborted transaction do not need its record (see DecidePush).
func (r *Record) Collectible(threshold hlc.Timestamp, resolved bool) bool {
	return r.Over(threshold) && (resolved || !r.MayHaveLocks())
}

// Over reports whether the record is decided, and every request that would make it anew is refused
// under the threshold.
func (r *Record) Over(threshold hlc.Timestamp) bool {
	return r.Decided() && r.Finished.LessEq(threshold)
}

// MayHaveLocks reports whether the transaction is committed and has had locks that turn into
// versions, in the partitions of its participants.
func (r *Record) MayHaveLocks() bool {
	return r.State == kvpb.TransactionState_COMMITTED && len(r.Participants) > 0
}
