package replica

import (
	"cmp"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction's start decides which goes first in conflicts, and how long it may go on; and it is
// the client that says when it was. So it is looked at wherever it could have an effect: where
// locks are taken, where a commit in one phase may wait for locks, and where a push would abort
// another transaction. What is ahead of every clock is refused as any timestamp is, after which the
// client tries again; what is longer ago than the keyspace allows is refused as aborted, so that
// the client begins anew.
//
// The limits of an open transaction are enforced at its record: package txn.

// isFuture says that a start is further ahead than any clock of the cluster can be. Unlike
// checkAhead it leaves the clock alone: nothing has to be above a start.
func (e *evaluation) isFuture(start hlc.Timestamp) bool {
	clock := e.r.node.Clock
	return !start.LessEq(e.Clock) && start.Wall-clock.Physical() > 2*int64(clock.MaxAhead())
}

// limitsOf are those of a keyspace; none if they are not known.
func (n *Node) limitsOf(id keys.KeyspaceID) txn.Limits {
	if n.TransactionLimits == nil || id == 0 {
		return txn.Limits{}
	}
	return n.TransactionLimits(id)
}

func (r *Replica) ownLimits() txn.Limits {
	return r.node.limitsOf(keys.KeyspaceID(r.Descriptor().GetKeyspace()))
}

// expired refuses a request that takes locks, or commits in one phase, by the age of its
// transaction; nil if it may go on. What was let in and waits for a lock is not looked at again:
// its record is.
func (e *evaluation) expired(w *write, of *txn.Info) *kvpb.Response {
	r := e.r
	if w.conflict() != nil {
		return nil
	}
	clock := r.node.Clock
	refused := r.ownLimits().TooOld(of, clock.Physical(), clock.MaxOffset())
	if refused == nil {
		return nil
	}
	r.node.Metrics.refusedStarts.Inc()
	refused.Message = "partition " + r.id.String() + ": " + refused.Message
	return &kvpb.Response{Id: w.pending.Request.Id, Error: refused.Proto()}
}

// unbelievablePusher refuses a push that would abort the pushee for a transaction that cannot have
// begun when it says so; nil if it can. The limits are those of the keyspace in which the pusher
// waits: there its request was let in.
func (e *evaluation) unbelievablePusher(w *write, push *txn.Push) *kvpb.Response {
	r, q, begun := e.r, w.pending.Request, push.PusherBegun
	if push.Kind != kvpb.PushRequest_ABORT || push.Pusher.IsZero() {
		return nil
	}
	if e.isFuture(begun) {
		return r.fromTheFuture(q, begun)
	}
	clock := r.node.Clock
	// An earlier server names only the wanted key.
	waits := cmp.Or(push.Locked, push.Wanted.Keyspace)
	limits := r.ownLimits()
	if waits != 0 {
		limits = r.node.limitsOf(waits)
	}
	if limits.Believable(begun, clock.Physical(), clock.MaxOffset()) {
		return nil
	}
	r.node.Metrics.refusedStarts.Inc()
	return newError(q, kvpb.ErrorCode_INVALID_ARGUMENT,
		"partition %s: transaction %s is to be aborted for %s, which says that it began at %s, and no transaction has gone on for so long",
		r.id, push.Pushee.ID, push.Pusher, begun)
}

// holdsLock says that a transaction has a lock here that is not about to go.
func (e *evaluation) holdsLock(id txn.ID) bool {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leadership.is(e.epoch) && r.mu.locks.Holds(id)
}
