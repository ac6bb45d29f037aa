package command

import (
	"cmp"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Push asks a transaction's coordinator to abort it, to keep it above a timestamp, or how it
// stands.
var Push = register((*kvpb.Request_Push)(nil), Command{
	Name:          "push",
	Way:           InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetPush() != nil },
	Permissions:   pushPermissions,
	Footprint: func(q *kvpb.Request) Footprint {
		return point(q.GetPush().GetPushee().GetAnchor())
	},
	Named: func(q *kvpb.Request) int64 { return wall(q.GetPush().GetAbove()) },
	CheckWrite: func(d *clusterpb.Partition, q *kvpb.Request) (w Writing, p *Problem) {
		push, err := txn.ParsePush(q.GetPush())
		if err != nil {
			return w, Invalid("%v", err)
		}
		w.Transaction = &Transaction{Info: push.Pushee, Push: push}
		w.Size = LockOverhead + len(push.Pushee.Anchor) + len(push.Wanted.Key)
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

// refusedPusher refuses a push that would abort the pushee for a transaction that cannot have begun
// when it says so. The limits are those of the keyspace in which the pusher waits: there its
// request was let in. It returns false if the start can be.
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
	e.Refuse(Refuse(q, kvpb.ErrorCode_INVALID_ARGUMENT,
		"partition %s: transaction %s is to be aborted for %s, which says that it began at %s, "+
			"and no transaction has gone on for so long", e.ID(), push.Pushee.ID, push.Pusher, begun))
	return true
}
