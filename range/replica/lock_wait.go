package replica

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/locks"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A write that meets a lock which is not its own, of its key or of the span that this lies in, is
// parked with that lock. When the lock is gone it goes back to the front of the
// queue and is evaluated anew, as if it had just come: nothing of it has happened. It may then meet another lock. Who waits for
// one key goes on in the order in which it came.
//
// When the reign ends, what is parked is refused: NOT_LEADER.

type lockTable = locks.Table[*parked]

type lock = locks.Lock[*parked]

// parked is a write that waits for a lock.
type parked struct {
	write
	until locks.Until
	// order numbers those that were parked.
	order uint64
	since time.Time
}

// transactional is what a write carries besides if it has to do with transactions.
type transactional struct {
	command.Transaction
	// one is set when a one-phase commit is about to be written.
	one *onePhase
	// superseded: a later attempt of the request was evaluated while it waited.
	superseded bool
	// aborted: its transaction was aborted here while it waited.
	aborted bool
	// conflict is what it waited for last.
	conflict *kvpb.Conflict
	// resolved counts the locks that earlier entries of a Resolve have ended, last is the last of these entries.
	resolved, last uint64
}

// transaction is whose the write is; the zero Info is nobody's.
func (w *write) transaction() txn.Info {
	if w.x == nil {
		return txn.Info{}
	}
	return w.x.Info
}

// blocked looks for locks in the way of a write that is no transaction's. If there is one, the write is parked, or refused.
func (e *evaluation) blocked(w *write) bool {
	r := e.r
	r.mu.Lock()
	if r.mu.reign != e.reign {
		r.mu.Unlock()
		return false // the write will find out
	}
	l, key := r.lockInTheWayLocked(w.pending.Request)
	if l == nil {
		r.mu.Unlock()
		return false
	}
	e.parkAtLocked(w, l, key, locks.UntilGone)
	return true
}

// lockInTheWayLocked is the first lock of a key that a request writes, or of a span that the key
// lies in, and the key.
func (r *Replica) lockInTheWayLocked(q *kvpb.Request) (found *lock, key string) {
	f := command.Of(q).Footprint(q)
	for k := range f.Keys {
		if l := r.lockAtLocked(text(k)); l != nil {
			return l, text(k)
		}
	}
	for s, e := range f.EachSpan {
		start, end := text(s), text(e)
		if l := r.keyLockInLocked(start, end, txn.ID{}); l != nil {
			return l, l.Key
		}
		if l := r.spanInTheWayLocked(start, end, txn.ID{}); l != nil {
			return l, max(start, l.Key)
		}
	}
	return nil, ""
}

// parkLocked is parkAtLocked for the lock of a key.
func (e *evaluation) parkLocked(w *write, l *lock, until locks.Until) {
	e.parkAtLocked(w, l, l.Key, until)
}

// parkAtLocked parks a write that is in the way of a lock with a key; when the evaluation is over,
// the transaction whose lock it is is asked about. It unlocks.
func (e *evaluation) parkAtLocked(w *write, l *lock, key string, until locks.Until) {
	r := e.r
	if r.mu.locks.Waiters() >= r.node.MaxLockWaiters ||
		(r.mu.locks.Waiters() > 0 && r.mu.waits.bytes+w.size > r.node.MaxQueuedBytes) {
		r.mu.Unlock()
		e.refuse(w, r.overloaded(w.pending.Request, "writes wait for transactions' locks"))
		return
	}
	if w.x == nil {
		w.x = &transactional{}
	}
	w.x.conflict = &kvpb.Conflict{Key: []byte(key), Transaction: l.Transaction.ID.Bytes()}
	r.mu.waits.order++
	r.mu.waits.bytes += w.size
	r.attemptWaitsLocked(w)
	r.mu.locks.Wait(l, &parked{write: *w, until: until, order: r.mu.waits.order, since: e.now}, until)
	e.tend = true
	r.mu.Unlock()
	r.node.Metrics.writesParked.Inc()
	if l.Span {
		r.node.Metrics.spanWaits.Inc()
	}
}

// leftLocked notes that a write waits no longer, whatever becomes of it.
func (r *Replica) leftLocked(p *parked) {
	r.mu.waits.bytes -= p.size
	r.node.Metrics.lockWaits.Observe(since(p.since))
}

// requeueLocked puts what waited back to the front of the queue, in the order in which it came.
func (r *Replica) requeueLocked(released []*parked) {
	if len(released) == 0 {
		return
	}
	slices.SortFunc(released, func(a, b *parked) int { return cmp.Compare(a.order, b.order) })
	writes := make([]write, len(released))
	for i, p := range released {
		writes[i] = p.write
		r.leftLocked(p)
	}
	r.mu.queue.PushFront(writes)
	r.node.Metrics.queued.Add(float64(len(writes)))
}

// drainParkedLocked takes out all that wait for locks, in the order in which they came.
func (r *Replica) drainParkedLocked() (writes []write) {
	released := r.mu.locks.Drain()
	slices.SortFunc(released, func(a, b *parked) int { return cmp.Compare(a.order, b.order) })
	for _, p := range released {
		writes = append(writes, p.write)
		r.leftLocked(p)
		r.attemptEndsLocked(&p.write)
	}
	return writes
}

// lockedError is the answer to a request whose time ran out while it waited.
func (r *Replica) lockedError(request *kvpb.Request, c *kvpb.Conflict) *kvpb.Response {
	response := newError(request, kvpb.ErrorCode_LOCKED,
		"partition %s: key %s is locked by transaction %x, and the request's time ran out; it did not run", r.id, keys.Pretty(c.Key), c.Transaction)
	response.Error.Conflict = c
	return response
}
