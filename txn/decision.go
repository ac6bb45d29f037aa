package txn

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Present is the coordinator's view of time while it decides.
type Present struct {
	// Physical is the coordinator's physical clock, in nanoseconds since the epoch.
	Physical int64
	// Since is the physical time since which the coordinator has heard heartbeats without a break.
	// It may have missed heartbeats before Since. 0 means long ago.
	Since int64
	// Now is the hybrid clock, into which every timestamp of the request was merged. (Timestamps
	// that the clock refuses are refused before anything is decided. Otherwise a record could
	// outlive its time, or keep its transaction from ever committing.)
	Now hlc.Timestamp
	// Threshold is the garbage collection threshold of the partition.
	Threshold hlc.Timestamp
	// Limits are the limits of the partition's keyspace. For a push they are the stricter of these
	// and the limits of the keyspace that has the lock.
	Limits Limits
	// Locked is set, for an abort that an operator requests, if the partition has a lock of the
	// transaction.
	Locked bool
	// Held is set, for a push, if the transaction's timestamp is held (EndTransactionRequest).
	Held bool
}

// Decision is the outcome of a request.
type Decision struct {
	// Record replaces the present record before the answer may be given; nil if the record stays as
	// it is, or if no record exists.
	Record *Record
	// Status is the answer, unless the request is Refused.
	Status  *kvpb.TransactionStatus
	Refused *Refusal
	// Unknown is set if nothing is known of the transaction, and nothing was decided. Status has no
	// meaning then.
	Unknown bool
}

// Refusal is the error with which a request ends that gets no status.
type Refusal struct {
	Code kvpb.ErrorCode
	// Message is the error text for users.
	Message string
	// Timestamp is set with TRANSACTION_PUSHED and TRANSACTION_TOO_OLD, Refused with
	// TRANSACTION_TOO_OLD (see kvpb.Error). The other fields are set with TRANSACTION_ABORTED.
	Timestamp, Refused hlc.Timestamp

	Reason  kvpb.AbortReason
	Wounder ID
	Wanted  Wanted
	Limit   time.Duration
}

// Proto returns the wire form.
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

// DecideEnd decides a transaction. record is the newest record, applied or not; nil if no record
// exists.
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
		// The transaction is over, or has not begun here: an open transaction has locked its
		// anchor. A transaction that has committed in one phase leaves no record, so a record that
		// says ABORTED could be wrong.
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

// DecideHeartbeat records that a transaction's client lives, and for how long its application has
// been idle. A transaction that exceeds a limit is aborted, and the answer says so.
func DecideHeartbeat(record *Record, h *Heartbeat, p Present) Decision {
	i := &h.Transaction
	switch {
	case record.Decided():
		return Decision{Status: record.Status()}
	case record == nil && i.Started.Less(p.Threshold):
		return tooOld(i, p)
	}
	next := pending(record, i, 0)
	// Heard is by the clock of the present leader, which may be behind the clock of an earlier
	// leader.
	next.Heard = max(0, p.Physical)
	next.Idle = h.Idle
	if reason, limit := p.Limits.overdue(next, i, p); limit > 0 {
		return decided(finished(next, i, p).beyond(reason, limit))
	}
	return decided(next)
}

// DecidePush returns the status of a transaction, and changes the record as far as the push asks
// for the change and is allowed to make it.
func DecidePush(record *Record, q *Push, p Present) Decision {
	i := &q.Pushee
	// Clocks differ, so a lock seen later than now counts as seen now.
	heard := max(0, min(q.Seen, p.Physical))
	if record != nil {
		heard = max(heard, record.Heard)
	}
	switch {
	case record.Decided():
		return Decision{Status: record.Status()}
	case record == nil && i.Started.Less(p.Threshold):
		// The pusher has met a lock of the transaction, and the write of that lock is in no
		// committed transaction:
		//
		//    - The transaction did not commit. A COMMITTED record stays until each participant has
		//      answered that it has no lock of it any more (Record.Collectible). A Prepare that
		//      comes again after that finds the version at the commit timestamp and prepares above
		//      it; or the version is collected already, and the Prepare is refused because the
		//      attempt began below that partition's threshold. So the lock that was met can only be
		//      such a late one, which has no effect however it is resolved.
		//    - It never will commit. Thresholds only rise, and DecideEnd and a one-phase commit
		//      refuse attempts that began below.
		//
		// So the answer is ABORTED for ever, without a record. (DecideEnd cannot conclude this for
		// the transaction's own client: the transaction may have been committed, resolved and
		// forgotten.)
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

// pending returns a copy of a pending record, or the first record of a transaction, with Heard at
// least heard.
func pending(record *Record, i *Info, heard int64) *Record {
	if record == nil {
		return &Record{Begun: i.Begun, Started: i.Started, Heard: heard}
	}
	next := *record
	next.Heard = max(next.Heard, heard)
	return &next
}

// finished returns a copy of a pending record, or the first record of a transaction, with Finished
// set for a decision now.
func finished(record *Record, i *Info, p Present) *Record {
	next := pending(record, i, 0)
	// INVARIANT: Finished is above Started. The record is collected when the threshold has reached
	// Finished, and requests of the attempt are refused from then on.
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

// beyond returns an aborted record for a transaction that has exceeded a limit.
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

// because returns an abort reason in words.
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
