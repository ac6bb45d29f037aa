package eval

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Volatile (unreplicated) locks make transactions that want the same key take turns, at the pace of
// the client instead of that of consensus. They lie in the leader's memory only: neither acquiring
// nor releasing one takes an entry. They keep others from writing as any lock does, but they
// promise nothing: what was read under them is validated when the transaction commits, like every
// other read.
//
// A commit in one phase releases its volatile locks when it is evaluated, not when it is applied.
// The next request in the queue gets the lock in the same evaluation, and with it the value in
// flight, before the entry is even proposed. It may read what is not committed yet, because its own
// transaction takes effect only if the value is committed:
//
//    - What it writes here is an entry that builds on the entry with the value, and takes effect
//      only if that one does (storage.Record.Accepts).
//    - What it writes elsewhere is decided after its reads were refreshed here, which waits until
//      the value is applied.
//    - If it writes nothing, or gives up because of what it has read, the client refreshes too,
//      before it says so.
//
// INVARIANT: a value in flight is lost only with the leadership epoch. The answer names the epoch,
// and so do validation and refresh: in another epoch, the key counts as changed. Versions alone
// could not tell, since the value that was read may never have existed. Reads by the same
// transaction name the epoch too, so that the transaction never sees the loss beside the lost
// value.

// isLeadership reports that a leadership is the one of this evaluation.
func (e *evaluation) isLeadership(l *kvpb.Leadership) bool {
	return e.epoch.IsWire(e.r.ID, l)
}

// releaseLocked releases a volatile lock. Requests that wait for it go on after the current write.
func (e *evaluation) releaseLocked(l *lock) {
	e.woken = append(e.woken, e.r.Mu.Locks.Release(l)...)
	e.reevaluate = true
}

// handOver resumes writes that waited for volatile locks which were released. The first gets its
// lock at once; those behind it would only meet that lock, and wait for it without being evaluated.
func (e *evaluation) handOver(internal *proposal.Entry) {
	r := e.r
	for len(e.woken) > 0 {
		woken := e.woken
		e.woken = nil
		concurrency.InOrder(woken)
		if first := writeOf(woken[0]); first.light() && !e.over {
			r.Mu.Lock()
			if r.Mu.Leadership.Is(e.epoch) {
				r.Mu.Locks.Writes.Leave(woken[:1]) // otherwise what waits is of another epoch
			}
			r.Mu.Unlock()
			e.line = max(e.line, len(woken))
			e.evaluate(first, internal)
			if woken = e.waitAgain(woken[1:]); len(woken) > 0 {
				e.woken = append(e.woken, woken...)
			}
			continue
		}
		r.Mu.Lock()
		if r.Mu.Leadership.Is(e.epoch) {
			r.RequeueLocked(woken)
			r.Mu.Unlock()
			continue
		}
		for _, p := range woken {
			r.attemptEndsLocked(writeOf(p))
		}
		r.Mu.Unlock()
		for _, p := range woken {
			e.refuse(writeOf(p), r.Refuse.NotLeader(writeOf(p).pending.Request))
		}
	}
}

// waitAgain makes writes wait for the lock that is on their key by now, and returns those whose key
// is free, or their own.
func (e *evaluation) waitAgain(woken []*concurrency.Waiter) (free []*concurrency.Waiter) {
	r := e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if !r.Mu.Leadership.Is(e.epoch) {
		return woken
	}
	return r.Mu.Locks.Writes.WaitAgain(woken)
}
