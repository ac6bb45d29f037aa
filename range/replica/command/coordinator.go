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

// The partition that holds a transaction's anchor is its coordinator. What it is asked is evaluated
// in the queue, one after the other: the rules are package txn's, and are given the record as it
// will be when what is pending is applied. An answer is sent when everything that it rests on is
// applied.

// Coordination is what the commands of transactions ask of the rest of their replica.
type Coordination interface {
	// PendingRecord is the record of a transaction that is proposed and not applied, and the sequence
	// of its entry; nil if there is none.
	PendingRecord(*txn.Info) (*txn.Record, uint64)
	// Believe brings the clock up to a timestamp that the request names. It returns false if no
	// clock of the cluster can have given it.
	Believe(hlc.Timestamp) bool
	// Future says that a transaction's start is further ahead than any clock of the cluster can be.
	// It leaves the clock alone: nothing has to be above a start.
	Future(start hlc.Timestamp) bool
	// Present is what the rules are told of time, and of the limits of the partition's keyspace.
	Present() txn.Present
	// Limits are those of a keyspace; none if they are not known.
	Limits(keys.KeyspaceID) txn.Limits
	// Physical is what the physical clock shows, in nanoseconds since the epoch, and how far the
	// clocks of the cluster may be apart.
	Physical() (now int64, maxOffset time.Duration)
	// Locks lends the partition's locks. The manager is not used after the call. held says that the
	// leadership epoch of the evaluation stands.
	Locks(use func(locks *concurrency.Manager, held bool))
	// Now is the time by which waiting for locks is measured.
	Now() time.Time
	// Threshold is the timestamp since which everything is kept.
	Threshold() hlc.Timestamp
	// Wait has the write wait for a lock that is in its way at a key. It is called within Locks, and
	// nothing else is said of the write after it. If too much waits it returns the refusal.
	Wait(l *concurrency.Lock, key string, until concurrency.Until) (refusal *kvpb.Response)
	// SilentSince is since when the client of a lock that is acquired now counts as silent, in
	// nanoseconds since the epoch, if no heartbeat comes.
	SilentSince() int64
	// WaitFloor is what the timestamp of a write with commit wait has to be at or above.
	WaitFloor() hlc.Timestamp
	// Highest is at or above the timestamps of all versions that are applied or pending. It is called
	// within Locks.
	Highest() hlc.Timestamp
	// Leadership is the leadership epoch of the evaluation, and IsLeadership says that a client names
	// this one.
	Leadership() *kvpb.Leadership
	IsLeadership(*kvpb.Leadership) bool
	// Busy says that there is so much to do that work of low priority makes way.
	Busy() bool
	// Count counts an event in the metrics.
	Count(Event)
}

// Event is what metrics count of an evaluation.
type Event uint8

const (
	// Conflict is one of transactions.
	Conflict Event = iota
	// RefusedStart is a transaction's start that is not believed.
	RefusedStart
	// Retry is a request that an earlier attempt has done.
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

// recordOf is a transaction's record as an evaluation sees it: pending, then in the engine; nil if
// there is none. sequence is of the entry that carries it, 0 if that is applied.
func (e *Evaluation) recordOf(of txn.Info) (record *txn.Record, sequence uint64, err error) {
	if record, sequence = e.Coordination.PendingRecord(&of); record != nil {
		return record, sequence, nil
	}
	record, err = StoredRecord(e.State, txn.RecordKey(e.InternalKey(of.Anchor), of.ID))
	return record, 0, err
}

// Decide says what was decided of the evaluation's transaction: a record is to be set, or it stays
// as it is. before is the record on which it was decided, and sequence of the entry that carries
// that.
func (e *Evaluation) Decide(q *kvpb.Request, before *txn.Record, sequence uint64, d txn.Decision,
	answer func(*kvpb.TransactionStatus) *kvpb.Response) {
	if d.Refused != nil {
		e.Answer(&kvpb.Response{Id: q.Id, Error: d.Refused.Proto()}, sequence)
		return
	}
	response := answer(d.Status)
	if after := cmp.Or(d.Record, before); after != nil {
		// Whatever asks, and whichever replica leads by now.
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

// Refusing adds to an error which timestamp it refuses, and at which bound; that may be zero.
func Refusing(response *kvpb.Response, refused, bound hlc.Timestamp) *kvpb.Response {
	response.Error.Refused = wire.ToTimestamp(refused)
	response.Error.Timestamp = wire.ToTimestamp(bound)
	return response
}

// refusedTimes refuses a request whose timestamps cannot be: one that it names, and the start of
// its transaction. It returns false if they can.
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

// ID is the partition's.
func (e *Evaluation) ID() keys.PartitionID { return keys.PartitionID(e.Descriptor.GetId()) }
