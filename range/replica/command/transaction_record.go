package command

import (
	"cmp"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/access"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// EndTransaction commits or aborts a transaction at its record.
var EndTransaction = register((*kvpb.Request_EndTransaction)(nil), Command{
	Name:          "end_transaction",
	Dispatch:      InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetEndTransaction() != nil },
	Permissions:   endNeeds,
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Point(q.GetEndTransaction().GetTransaction().GetAnchor())
	},
	Named: func(q *kvpb.Request) int64 { return wall(q.GetEndTransaction().GetCommitTimestamp()) },
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *request.Problem) {
		end, err := txn.ParseEnd(q.GetEndTransaction())
		if err != nil {
			return w, request.Invalid("ending a transaction: %v", err)
		}
		w.Transaction = &Transaction{Info: end.Transaction, End: end}
		w.Size = request.LockOverhead + len(end.Transaction.Anchor)
		for _, p := range end.Participants {
			w.Size += len(p.First) + len(p.Last) + 16
		}
		return w, checkAnchor(d, end.Transaction)
	},
	Evaluate: endTransaction,
})

func endTransaction(e *Evaluation, q *kvpb.Request) error {
	end := e.Transaction.End
	of := end.Transaction
	if e.refusedTimes(q, end.Timestamp, of.Started) {
		return nil
	}
	record, sequence, err := e.recordOf(of)
	if err != nil {
		return err
	}
	present := e.Coordination.Present()
	if end.Requested {
		e.Coordination.Locks(func(locks *concurrency.Manager, held bool) {
			present.Locked = held && locks.Holds(&of)
		})
	}
	d := txn.DecideEnd(record, end, present)
	pushed := d.Refused != nil && d.Refused.Code == kvpb.ErrorCode_TRANSACTION_PUSHED
	if aborted, hold := end.Requested && d.Record != nil,
		pushed && q.GetEndTransaction().GetHoldTimestamp(); aborted || hold {
		e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
			if aborted {
				locks.Coordinated.RememberAborted(of)
			}
			if hold {
				locks.Coordinated.HoldTimestamp(of.ID, e.Coordination.Now())
			}
		})
	}
	e.Decide(q, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_EndTransaction{
			EndTransaction: &kvpb.EndTransactionResponse{Status: s, Unknown: d.Unknown}}}
	})
	return nil
}

// endNeeds are Write for the anchor. Ending another client's transaction needs Admin.
func endNeeds(at request.Place, q *kvpb.Request, needs []access.Permission) []access.Permission {
	c := q.GetEndTransaction()
	if c.GetRequested() {
		needs = request.NeedAll(needs, at.Keyspace, access.Admin)
	}
	return request.NeedAnchor(needs, c.GetTransaction())
}

// Heartbeat tells a transaction's coordinator that its client is alive. It counts even if no caller
// waits for the answer.
var Heartbeat = register((*kvpb.Request_HeartbeatTransaction)(nil), Command{
	Name:          "heartbeat_transaction",
	Dispatch:      InQueue,
	Transactional: true,
	Late:          true,
	Body:          func(q *kvpb.Request) bool { return q.GetHeartbeatTransaction() != nil },
	Permissions: func(_ request.Place, q *kvpb.Request,
		needs []access.Permission) []access.Permission {
		return request.NeedAnchor(needs, q.GetHeartbeatTransaction().GetTransaction())
	},
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Point(q.GetHeartbeatTransaction().GetTransaction().GetAnchor())
	},
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *request.Problem) {
		beat, err := txn.ParseHeartbeat(q.GetHeartbeatTransaction())
		if err != nil {
			return w, request.Invalid("%v", err)
		}
		w.Transaction = &Transaction{Info: beat.Transaction, Heartbeat: beat}
		w.Size = request.LockOverhead + len(beat.Transaction.Anchor)
		return w, checkAnchor(d, beat.Transaction)
	},
	Evaluate: heartbeat,
})

func heartbeat(e *Evaluation, q *kvpb.Request) error {
	of := e.Transaction.Info
	if e.Coordination.Future(of.Started) {
		e.Refuse(fromTheFuture(e.ID(), q, of.Started))
		return nil
	}
	record, sequence, err := e.recordOf(of)
	if err != nil {
		return err
	}
	wanted := false
	e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
		wanted = locks.Coordinated.Wanted(of.ID)
	})
	d := txn.DecideHeartbeat(record, e.Transaction.Heartbeat, e.Coordination.Present())
	e.Decide(q, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_HeartbeatTransaction{
			HeartbeatTransaction: &kvpb.HeartbeatTransactionResponse{Status: s, Wanted: wanted}}}
	})
	return nil
}

// Push asks a transaction's coordinator to abort the transaction, to keep its commit above a
// timestamp, or for its state.
var Push = register((*kvpb.Request_Push)(nil), Command{
	Name:          "push",
	Dispatch:      InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetPush() != nil },
	Permissions:   pushNeeds,
	Footprint: func(q *kvpb.Request) request.Footprint {
		return request.Point(q.GetPush().GetPushee().GetAnchor())
	},
	Named: func(q *kvpb.Request) int64 { return wall(q.GetPush().GetAbove()) },
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *request.Problem) {
		push, err := txn.ParsePush(q.GetPush())
		if err != nil {
			return w, request.Invalid("%v", err)
		}
		w.Transaction = &Transaction{Info: push.Pushee, Push: push}
		w.Size = request.LockOverhead + len(push.Pushee.Anchor) + len(push.Wanted.Key)
		return w, checkAnchor(d, push.Pushee)
	},
	Evaluate: push,
})

func push(e *Evaluation, q *kvpb.Request) error {
	c, push := q.GetPush(), e.Transaction.Push
	of := push.Pushee
	if e.refusedTimes(q, push.Above, of.Started) || e.refusedPusher(q, push) {
		return nil
	}
	record, sequence, err := e.recordOf(of)
	if err != nil {
		return err
	}
	present := e.Coordination.Present()
	e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
		if c.GetAwaited() && !record.Decided() {
			locks.Coordinated.Want(of.ID)
		}
		present.Held = locks.Coordinated.TimestampHeld(of.ID, e.Coordination.Now())
	})
	present.Limits = present.Limits.Stricter(e.Coordination.Limits(push.Locked))
	d := txn.DecidePush(record, push, present)
	e.Decide(q, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id,
			Result: &kvpb.Response_Push{Push: &kvpb.PushResponse{Status: s}}}
	})
	return nil
}

// refusedPusher refuses a push that would abort the pushee for a transaction with an impossible
// start. The limits are those of the keyspace in which the pusher waits, where its request was
// accepted. It returns false if the start is possible.
func (e *Evaluation) refusedPusher(q *kvpb.Request, push *txn.Push) bool {
	begun := push.PusherBegun
	if push.Kind != kvpb.PushRequest_ABORT || push.Pusher.IsZero() {
		return false
	}
	if e.Coordination.Future(begun) {
		e.Refuse(fromTheFuture(e.ID(), q, begun))
		return true
	}
	// An earlier server names only the wanted key.
	waits := cmp.Or(push.Locked, push.Wanted.Keyspace, keys.KeyspaceID(e.Descriptor.GetKeyspace()))
	now, offset := e.Coordination.Physical()
	if e.Coordination.Limits(waits).Believable(begun, now, offset) {
		return false
	}
	e.Coordination.Count(RefusedStart)
	e.Refuse(request.Refuse(q, kvpb.ErrorCode_INVALID_ARGUMENT,
		"partition %s: transaction %s is to be aborted for %s, which says that it began at %s, "+
			"and no transaction has gone on for so long", e.ID(), push.Pushee.ID, push.Pusher, begun))
	return true
}

// pushNeeds are Admin: only servers push, and servers need no rights.
func pushNeeds(at request.Place, _ *kvpb.Request, needs []access.Permission) []access.Permission {
	return request.NeedAll(needs, at.Keyspace, access.Admin)
}
