package replica

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Volatile locks make transactions that want the same key take turns, at the pace of the client
// instead of that of consensus. They are in the leader's memory only: acquiring one takes no entry,
// and ending one neither. They keep others from writing as any lock does, and promise nothing: what
// was read under them is validated when the transaction commits, like everything else it has read.
//
// A commit in one phase ends its volatile locks when it is evaluated, not when it is applied. The
// next in the queue gets the lock in the same evaluation, and with it the value that is in flight,
// before that is even proposed. It may read what is not committed yet, because whatever it does
// with it comes to nothing unless that is committed as well:
//
//   - What it writes here is an entry that builds on the one with the value, and takes effect only
//     if that does (accepts).
//   - What it writes elsewhere is decided after its reads were refreshed here, which waits until
//     the value is applied.
//   - If it writes nothing, or gives up because of what it has read, the client refreshes too,
//     before it says so.
//
// INVARIANT: a value in flight is lost only with the leadership epoch. The answer names the epoch,
// and so do validation and refresh: in another one, what was read is taken for changed. Versions
// alone could not tell, for what was read may never have existed. Reads by the same transaction
// name it too, so that it never sees, beside what was lost, that it was.

// isLeadership says that a leadership is this one.
func (e *evaluation) isLeadership(l *kvpb.Leadership) bool {
	return e.epoch.IsWire(e.r.id, l)
}

// SameLeadership says that reads were made under the present leadership epoch.
func (r *Replica) SameLeadership(l *kvpb.Leadership) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.leadership.Serving() && r.isLeadershipLocked(l)
}

// isLeadershipLocked says that a leadership is the present one of this replica.
func (r *Replica) isLeadershipLocked(l *kvpb.Leadership) bool {
	return r.mu.leadership.Epoch().IsWire(r.id, l)
}

// releaseLocked ends a volatile lock. What waits for it is handed on after the write at hand.
func (e *evaluation) releaseLocked(l *lock) {
	e.woken = append(e.woken, e.r.mu.locks.Release(l)...)
	e.reevaluate = true
}

// hurried says that others may wait for the write: it acquires volatile locks, or ends them. It is
// evaluated even if it cannot be proposed yet.
func (w *write) hurried() bool {
	return w.internal == nil && w.command.IsHurried(w.pending.Request)
}

// light says that a write that has waited wants nothing but volatile locks.
func (w *write) light() bool { return w.pending.Request.GetPrepare().GetVolatile() }

// handOver lets writes go on that waited for volatile locks which were released. The first gets its
// lock here and now; those behind it, which would only meet that, wait for it without being
// evaluated.
func (e *evaluation) handOver(internal *proposal.Entry) {
	r := e.r
	for len(e.woken) > 0 {
		woken := e.woken
		e.woken = nil
		concurrency.InOrder(woken)
		if first := writeOf(woken[0]); first.light() && !e.over {
			r.mu.Lock()
			if r.mu.leadership.Is(e.epoch) {
				r.mu.locks.Leave(woken[:1]) // otherwise what waits is of another epoch
			}
			r.mu.Unlock()
			e.proposal.line = max(e.proposal.line, len(woken))
			e.evaluate(first, internal)
			if woken = e.waitAgain(woken[1:]); len(woken) > 0 {
				e.woken = append(e.woken, woken...)
			}
			continue
		}
		r.mu.Lock()
		if r.mu.leadership.Is(e.epoch) {
			r.requeueLocked(woken)
			r.mu.Unlock()
			continue
		}
		for _, p := range woken {
			r.attemptEndsLocked(writeOf(p))
		}
		r.mu.Unlock()
		for _, p := range woken {
			e.refuse(writeOf(p), r.refuse.NotLeader(writeOf(p).pending.Request))
		}
	}
}

// waitAgain has writes wait for the lock that is on their key by now, and returns those whose key
// is free, or their own.
func (e *evaluation) waitAgain(woken []*concurrency.Waiter) (free []*concurrency.Waiter) {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.Is(e.epoch) {
		return woken
	}
	return r.mu.locks.WaitAgain(woken)
}
