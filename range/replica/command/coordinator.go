package command

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// The partition that holds a transaction's anchor is its coordinator. Requests to the coordinator
// are evaluated in the queue, one after the other. The rules are in package txn; they are given the
// record as it will be when all pending entries are applied. An answer is sent when everything that
// it relies on is applied.

// Coordination is what the commands of transactions need of their replica.
type Coordination interface {
	// PendingRecord returns the record of a transaction that is proposed and not applied, and the
	// sequence of its entry; nil if there is none.
	PendingRecord(*txn.Info) (*txn.Record, uint64)
	// Believe advances the clock to a timestamp that the request names. It returns false if no
	// clock of the cluster can have given that timestamp.
	Believe(hlc.Timestamp) bool
	// Future reports whether a transaction's start is further ahead than any clock of the cluster
	// can be. It does not advance the clock, because no timestamp has to be above a start.
	Future(start hlc.Timestamp) bool
	// Present returns the time and the limits of the partition's keyspace, as the rules of package
	// txn need them.
	Present() txn.Present
	// Limits returns the limits of a keyspace; none if they are unknown.
	Limits(keys.KeyspaceID) txn.Limits
	// Physical returns the physical clock, in nanoseconds since the epoch, and how far the clocks
	// of the cluster may be apart.
	Physical() (now int64, maxOffset time.Duration)
	// Locks lends the partition's locks. The manager must not be used after the call. held reports
	// whether the leadership epoch of the evaluation still holds.
	Locks(use func(locks *concurrency.Manager, held bool))
	// Now returns the time by which waits for locks are measured.
	Now() time.Time
	// Threshold returns the garbage collection threshold: all versions above it are kept.
	Threshold() hlc.Timestamp
	// Wait makes the write wait for a lock at a key. It is called within Locks, and ends the
	// evaluation of the write. If too much waits it returns the refusal.
	Wait(l *concurrency.Lock, key string, until concurrency.Until) (refusal *kvpb.Response)
	// SilentSince returns when the client of a lock that is acquired now begins to count as silent,
	// in nanoseconds since the epoch, if no heartbeat comes.
	SilentSince() int64
	// WaitFloor returns the lowest timestamp that a write with commit wait may have.
	WaitFloor() hlc.Timestamp
	// Highest returns a timestamp at or above all versions that are applied or pending. It is
	// called within Locks.
	Highest() hlc.Timestamp
	// Leadership returns the leadership epoch of the evaluation; IsLeadership reports whether a
	// client names this epoch.
	Leadership() *kvpb.Leadership
	IsLeadership(*kvpb.Leadership) bool
	// Busy reports whether there is so much work that work of low priority is refused.
	Busy() bool
	// Count counts an event in the metrics.
	Count(Event)
}

// Event is an event that metrics count.
type Event uint8

const (
	// Conflict is a conflict of transactions.
	Conflict Event = iota
	// RefusedStart is a transaction's start that was not believed.
	RefusedStart
	// Retry is a request whose effect an earlier attempt already had.
	Retry
	// SpansRefused is a request to hold too many spans.
	SpansRefused
)

// StoredRecord reads a transaction record; nil if there is none.
func StoredRecord(state engine.Reader, key []byte) (*txn.Record, error) {
	value, closer, err := state.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	record, err := txn.DecodeRecord(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", storage.ErrRecord, keys.PrettyState(key), err)
	}
	return &record, nil
}

// recordOf returns a transaction's record as the evaluation sees it: the pending one, else the one
// in the engine, else nil. sequence is that of the entry that carries the record, 0 if it is
// applied.
func (e *Evaluation) recordOf(of txn.Info) (record *txn.Record, sequence uint64, err error) {
	if record, sequence = e.Coordination.PendingRecord(&of); record != nil {
		return record, sequence, nil
	}
	record, err = StoredRecord(e.State, txn.RecordKey(e.InternalKey(of.Anchor), of.ID))
	return record, 0, err
}

// Decide reports the decision about the evaluation's transaction: its record is set, or stays as it
// is. before is the record on which the decision is based, and sequence that of the entry that
// carries before.
func (e *Evaluation) Decide(q *kvpb.Request, before *txn.Record, sequence uint64, d txn.Decision,
	answer func(*kvpb.TransactionStatus) *kvpb.Response) {
	if d.Refused != nil {
		e.Answer(&kvpb.Response{Id: q.Id, Error: d.Refused.Proto()}, sequence)
		return
	}
	response := answer(d.Status)
	if after := cmp.Or(d.Record, before); after != nil {
		// This holds for every answer about the record, whichever replica leads by now.
		e.HoldFor(after.CommitWait, after.Timestamp)
	}
	if d.Record == nil {
		e.Answer(response, sequence)
		return
	}
	e.Outcome, e.Response = Decided, response
	e.Set, e.Before = d.Record, before
}

// fromTheFuture refuses a timestamp that no clock of the cluster can have given.
func fromTheFuture(partition keys.PartitionID, q *kvpb.Request, ts hlc.Timestamp) *kvpb.Response {
	return Refusing(request.Refuse(q, kvpb.ErrorCode_CLOCK_SKEW,
		"partition %s: the timestamp %s is too far ahead of this server's clock; "+
			"check the time synchronisation of the servers", partition, ts), ts, hlc.Timestamp{})
}

// Refusing adds to an error the timestamp that it refuses, and the bound, which may be zero.
func Refusing(response *kvpb.Response, refused, bound hlc.Timestamp) *kvpb.Response {
	response.Error.Refused = wire.ToTimestamp(refused)
	response.Error.Timestamp = wire.ToTimestamp(bound)
	return response
}

// refusedTimes refuses a request with impossible timestamps: one that it names, or the start of its
// transaction. It returns false if they are possible.
func (e *Evaluation) refusedTimes(q *kvpb.Request, named, started hlc.Timestamp) bool {
	switch {
	case !e.Coordination.Believe(named):
		e.Refuse(fromTheFuture(e.ID(), q, named))
	case e.Coordination.Future(started):
		e.Refuse(fromTheFuture(e.ID(), q, started))
	default:
		return false
	}
	return true
}

// ID returns the partition's id.
func (e *Evaluation) ID() keys.PartitionID { return keys.PartitionID(e.Descriptor.GetId()) }
