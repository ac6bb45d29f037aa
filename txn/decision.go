package txn

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Present is what a coordinator knows of time while it decides.
type Present struct {
	// Physical is its physical clock, in nanoseconds since the epoch.
	Physical int64
	// Since is since when, by that clock, heartbeats have been heard without a break: a client that
	// was silent before may not have been heard. 0 is long ago.
	Since int64
	// Now is its hybrid clock, which has taken in every timestamp of the request. (One that the
	// clock refuses is refused before there is anything to decide, so that no record outlives its
	// time or keeps its transaction from ever committing.)
	Now hlc.Timestamp
	// Threshold is the garbage collection threshold of the partition.
	Threshold hlc.Timestamp
	// Limits are those of the partition's keyspace, and for a push of that in which the lock was
	// met, whatever is stricter.
	Limits Limits
	// Locked says, for an abort that a person asks for, that the partition has a lock of the
	// transaction.
	Locked bool
	// Held says, for a push, that the transaction's timestamp is held (EndTransactionRequest).
	Held bool
}

// Decision is what becomes of a request.
type Decision struct {
	// Record replaces the present record before the answer may be given; nil if that stays as it
	// is, or there is none.
	Record *Record
	// Status is the answer, unless the request is Refused.
	Status  *kvpb.TransactionStatus
	Refused *Refusal
	// Unknown goes with a Status that is of no meaning: nothing is known of the transaction, and
	// nothing was decided.
	Unknown bool
}

// Refusal is a request's end without a status.
type Refusal struct {
	Code kvpb.ErrorCode
	// Message is a sentence for people.
	Message string
	// Timestamp goes with TRANSACTION_PUSHED, and with TRANSACTION_TOO_OLD, as does Refused: see
	// kvpb.Error. The rest goes with TRANSACTION_ABORTED.
	Timestamp, Refused hlc.Timestamp

	Reason  kvpb.AbortReason
	Wounder ID
	Wanted  Wanted
	Limit   time.Duration
}

// Proto is the wire form.
func (r *Refusal) Proto() *kvpb.Error {
	e := &kvpb.Error{Code: r.Code, Message: r.Message,
		Timestamp: wire.ToTimestamp(r.Timestamp), Refused: wire.ToTimestamp(r.Refused)}
	if r.Reason != kvpb.AbortReason_NO_REASON {
		e.Conflict = &kvpb.Conflict{Reason: r.Reason, Transaction: r.Wounder.Bytes(),
			Key: r.Wanted.Key, Keyspace: uint32(r.Wanted.Keyspace),
			LimitMicros: uint64(r.Limit.Microseconds())}
	}
	return e
}

// DecideEnd decides a transaction. record is what is there now, with what is on its way to be
// applied taken for applied; nil if there is none.
func DecideEnd(record *Record, e *End, p Present) Decision {
	i := &e.Transaction
	switch {
	case record.Decided():
		if e.Commit && record.State == kvpb.TransactionState_ABORTED {
			return Decision{Refused: &Refusal{
				Code: kvpb.ErrorCode_TRANSACTION_ABORTED, Reason: record.Reason,
				Wounder: record.Wounder, Wanted: record.Wanted, Limit: record.Limit,
				Message: fmt.Sprintf("transaction %s was aborted: %s; it has to run again", i.ID,
					because(record.Reason, record.Limit)),
			}}
		}
		return Decision{Status: record.Status()}
	case record == nil && i.Started.Less(p.Threshold):
		return tooOld(i, p)
	case e.Requested && record == nil && !p.Locked:
		// It is over, or has not begun here: an open transaction has locked its anchor. One that
		// has committed in one phase leaves no record, so to write that it was aborted would be
		// untrue.
		return Decision{Status: record.Status(), Unknown: true}
	case e.Requested:
		return decided(finished(record, i, p).abort(kvpb.AbortReason_REQUESTED, e.Participants))
	case !e.Commit:
		return decided(finished(record, i, p).abort(kvpb.AbortReason_ROLLED_BACK, e.Participants))
	case record != nil && e.Timestamp.LessEq(record.Timestamp):
		return Decision{Refused: &Refusal{
			Code: kvpb.ErrorCode_TRANSACTION_PUSHED, Timestamp: record.Timestamp,
			Message: fmt.Sprintf("transaction %s cannot commit at %s any more, only above %s: "+
				"another transaction has read below", i.ID, e.Timestamp, record.Timestamp),
		}}
	}
	return decided(finished(record, i, p).commit(e))
}

// DecideHeartbeat notes that a transaction's client lives, and what it says of the application. If
// the transaction is beyond a limit, it is aborted: so the client is told.
func DecideHeartbeat(record *Record, h *Heartbeat, p Present) Decision {
	i := &h.Transaction
	switch {
	case record.Decided():
		return Decision{Status: record.Status()}
	case record == nil && i.Started.Less(p.Threshold):
		return tooOld(i, p)
	}
	next := pending(record, i, 0)
	// By the clock of the present leader, which may be behind that of an earlier leader.
	next.Heard = max(0, p.Physical)
	next.Idle = h.Idle
	if reason, limit := p.Limits.overdue(next, i, p); limit > 0 {
		return decided(finished(next, i, p).beyond(reason, limit))
	}
	return decided(next)
}

// DecidePush says how a transaction stands, and changes that as the push asks and its rights allow.
func DecidePush(record *Record, q *Push, p Present) Decision {
	i := &q.Pushee
	// What was seen later than now was seen just now: clocks differ.
	heard := max(0, min(q.Seen, p.Physical))
	if record != nil {
		heard = max(heard, record.Heard)
	}
	switch {
	case record.Decided():
		return Decision{Status: record.Status()}
	case record == nil && i.Started.Less(p.Threshold):
		// What asks has met a lock of it, and that lock's write is in no committed transaction:
		//
		//   - It did not commit. A COMMITTED record stays until each participant has answered that
		//     it has no lock of it any more (Record.Collectible). If a Prepare comes again to one
		//     after that, it finds the version at the commit timestamp and prepares above it, or
		//     that version may be collected already, and it is refused because the attempt began
		//     below that partition's threshold. So the lock that was met is a late one at most,
		//     which goes without effect however it is resolved.
		//   - It never will. Thresholds only rise, and DecideEnd and a one-phase commit refuse what
		//     began below.
		//
		// Nothing has to be written for that to stay so. (The client that asks for the end
		// is told less: its transaction may have been committed, and be resolved and forgotten.)
		return Decision{Status: &kvpb.TransactionStatus{State: kvpb.TransactionState_ABORTED,
			Reason: kvpb.AbortReason_ABANDONED}}
	case p.Physical-max(heard, p.Since) > int64(Abandoned):
		return decided(finished(record, i, p).abort(kvpb.AbortReason_ABANDONED, nil))
	}
	if reason, limit := p.Limits.overdue(record, i, p); limit > 0 {
		return decided(finished(record, i, p).beyond(reason, limit))
	}
	switch {
	case q.Kind == kvpb.PushRequest_ABORT && Older(q.PusherBegun, q.Pusher, i.Begun, i.ID):
		next := finished(record, i, p).abort(kvpb.AbortReason_WOUNDED, nil)
		next.Wounder, next.Wanted = q.Pusher, q.Wanted
		return decided(next)
	case q.Kind == kvpb.PushRequest_TIMESTAMP && !p.Held &&
		(record == nil || record.Timestamp.Less(q.Above)):
		next := pending(record, i, heard)
		next.Timestamp = q.Above
		return decided(next)
	}
	return Decision{Status: record.Status()}
}

func decided(next *Record) Decision { return Decision{Record: next, Status: next.Status()} }

// pending is a copy of a pending record, or the first one of a transaction, heard of at that time
// at least.
func pending(record *Record, i *Info, heard int64) *Record {
	if record == nil {
		return &Record{Begun: i.Begun, Started: i.Started, Heard: heard}
	}
	next := *record
	next.Heard = max(next.Heard, heard)
	return &next
}

// finished is a copy of a pending record, or the first one of a transaction, that is to be decided
// now.
func finished(record *Record, i *Info, p Present) *Record {
	next := pending(record, i, 0)
	// INVARIANT: above Started. The record goes when the threshold has reached Finished, and is
	// refused from then on.
	next.Finished = hlc.Max(p.Now, next.Started.Next())
	return next
}

func (r *Record) commit(e *End) *Record {
	r.State, r.Timestamp, r.Participants, r.CommitWait = kvpb.TransactionState_COMMITTED, e.Timestamp,
		e.Participants, e.Wait
	r.Idle = 0
	return r
}

func (r *Record) abort(reason kvpb.AbortReason, participants []Participant) *Record {
	r.State, r.Timestamp, r.Reason, r.Participants = kvpb.TransactionState_ABORTED, hlc.Timestamp{},
		reason, participants
	r.Idle = 0
	return r
}

// beyond is abort, because of a limit.
func (r *Record) beyond(reason kvpb.AbortReason, limit time.Duration) *Record {
	r.Limit = limit.Truncate(time.Millisecond)
	return r.abort(reason, nil)
}

func tooOld(i *Info, p Present) Decision {
	return Decision{Refused: &Refusal{
		Code: kvpb.ErrorCode_TRANSACTION_TOO_OLD, Timestamp: p.Threshold, Refused: i.Started,
		Message: fmt.Sprintf("transaction %s began at %s, and what was decided is kept since %s "+
			"only; its outcome cannot be told any more",
			i.ID, i.Started, p.Threshold),
	}}
}

// because is a reason in words.
func because(reason kvpb.AbortReason, limit time.Duration) string {
	switch reason {
	case kvpb.AbortReason_ROLLED_BACK:
		return "it was rolled back"
	case kvpb.AbortReason_WOUNDED:
		return "an older transaction wanted one of its keys"
	case kvpb.AbortReason_ABANDONED:
		return fmt.Sprintf("nothing was heard of its client for %s", Abandoned)
	case kvpb.AbortReason_EXPIRED:
		return fmt.Sprintf("it went on for longer than %s, the maximum age of transactions in a "+
			"keyspace that it locks keys of", limit)
	case kvpb.AbortReason_IDLE:
		return fmt.Sprintf("its application made no call for longer than %s, the maximum idle "+
			"time of transactions in a keyspace that it locks keys of", limit)
	case kvpb.AbortReason_REQUESTED:
		return "an operator asked for it"
	}
	return reason.String()
}
