package eval

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
	return e.epoch.IsWire(e.r.ID, l)
}

// releaseLocked ends a volatile lock. What waits for it is handed on after the write at hand.
func (e *evaluation) releaseLocked(l *lock) {
	e.woken = append(e.woken, e.r.Mu.Locks.Release(l)...)
	e.reevaluate = true
}

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

// waitAgain has writes wait for the lock that is on their key by now, and returns those whose key
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
