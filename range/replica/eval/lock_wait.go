package eval

import (
	"strings"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A write that meets a lock waits in the concurrency manager; this file has the write's part. When
// the leadership epoch ends, the write is refused: NOT_LEADER.

// waitingWrite is a write that waits for a lock.
type waitingWrite struct {
	concurrency.Waiter
	write write
}

// writeOf returns the write that waits, or has waited.
func writeOf(w *concurrency.Waiter) *write { return w.Element.(*write) }

// RequestOf returns the request of a write that waits.
func RequestOf(w *concurrency.Waiter) *kvpb.Request { return writeOf(w).pending.Request }

// waiter returns the write in the form that the concurrency manager takes.
func (w *write) waiter() *concurrency.Waiter {
	if w.x == nil {
		w.x = &transactional{}
	}
	if !w.x.detached {
		w.x.detached, w.pending.Request = true, wire.CloneRequest(w.pending.Request)
	}
	p := &waitingWrite{write: *w}
	p.Waiter = concurrency.Waiter{Element: &p.write, Request: w.requestID(), Kind: w.waitKind(),
		LowPriority:  w.pending.Request.GetPrepare().GetLowPriority(),
		MayDoNothing: w.mayDoNothing(),
		Transaction:  w.x.Info.ID, Begun: w.x.Info.Begun,
		Deadline: w.pending.Deadline(), Size: w.size, History: &w.x.history}
	return &p.Waiter
}

// blocked looks for locks in the way of a write that belongs to no transaction. If there is a lock,
// the write waits for it, or is refused.
func (e *evaluation) blocked(w *write) bool {
	r := e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if !r.Mu.Leadership.Is(e.epoch) {
		return false // the write will find out
	}
	l, key := r.lockInTheWayLocked(w.pending.Request)
	if l == nil {
		return false
	}
	if refusal := e.waitLocked(w, l, key, concurrency.UntilGone); refusal != nil {
		e.refuse(w, refusal)
	}
	return true
}

// lockInTheWayLocked returns the first lock of a key that a request writes, or of a span around
// such a key, and the key.
func (r *Evaluator) lockInTheWayLocked(q *kvpb.Request) (l *lock, key string) {
	f := command.Of(q).Footprint(q)
	for k := range f.Keys {
		if l := r.Mu.Locks.OnKey(k); l != nil {
			return l, machine.Text(k)
		}
	}
	for start, end := range f.EachSpan {
		if l, key := r.Mu.Locks.InSpan(start, end); l != nil {
			return l, key
		}
	}
	return nil, ""
}

// waitLocked makes a write wait for a lock that is in its way at a key. If too much waits already
// it returns the refusal. The transaction that holds the lock is asked about when the evaluation is
// over.
func (e *evaluation) waitLocked(w *write, l *lock, key string,
	until concurrency.Until) (refusal *kvpb.Response) {
	r := e.r
	if !r.Mu.Locks.Writes.MayWait(w.size) {
		return r.Refuse.Overloaded(w.pending.Request, "writes wait for transactions' locks")
	}
	if t := w.pending.Timing; t != nil {
		t.Enter(timing.Lock)
		t.Block(timing.Blocked{Key: strings.Clone(key), Transaction: l.Transaction.ID.String()})
	}
	r.Mu.Locks.Writes.Wait(w.waiter(), l, key, until, e.now)
	e.reevaluate = true
	return nil
}

// RequeueLocked returns waiting writes to the front of the queue, in the order in which they came.
func (r *Evaluator) RequeueLocked(woken []*concurrency.Waiter) {
	if len(woken) == 0 {
		return
	}
	r.Mu.Locks.Writes.Leave(woken)
	writes := make([]write, len(woken))
	for i, p := range woken {
		writes[i] = *writeOf(p)
		writes[i].pending.Timing.Enter(timing.Queue)
	}
	r.queue.PushFront(writes)
	r.Node.Metrics.Writes.Queued.Add(float64(len(writes)))
}

// attemptEndsLocked notes that a write which has waited neither waits nor is queued any longer.
func (r *Evaluator) attemptEndsLocked(w *write) {
	if w.x != nil && w.mayDoNothing() {
		r.Mu.Locks.Writes.Attempts.End(w.requestID(), &w.x.history)
	}
}

// retriedSince reports that a later attempt of a write that has waited was evaluated meanwhile.
func (e *evaluation) retriedSince(w *write) bool {
	if w.conflict() == nil || !w.mayDoNothing() {
		return false // it has not waited
	}
	r := e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	r.attemptEndsLocked(w)
	return w.x.history.Retried
}
