package replica

import (
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// A write that meets a lock waits in the concurrency manager. What it is to that is said here. When
// the leadership epoch ends, it is refused: NOT_LEADER.

// waitingWrite is a write that waits for a lock.
type waitingWrite struct {
	concurrency.Waiter
	write write
}

// writeOf is the write that waits, or has waited.
func writeOf(w *concurrency.Waiter) *write { return w.Element.(*write) }

// transactional is what a write carries besides if it has to do with transactions.
type transactional struct {
	command.Transaction
	// detached: the request has a buffer of its own.
	detached bool
	// history is what it has met while it waited for locks.
	history concurrency.History
	// resolved counts the locks that earlier entries of a Resolve have ended, last is the last of
	// these entries.
	resolved, last uint64
}

// transaction is the write's; the zero Info: it has none.
func (w *write) transaction() txn.Info {
	if w.x == nil {
		return txn.Info{}
	}
	return w.x.Info
}

// conflict is what the write waited for last; nil: it has not waited.
func (w *write) conflict() *kvpb.Conflict {
	if w.x == nil {
		return nil
	}
	return w.x.history.Conflict
}

func (w *write) requestID() mvcc.RequestID {
	return mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
}

// waitKind is what the write is to the concurrency manager.
func (w *write) waitKind() concurrency.Kind {
	switch {
	case w.command.EndsLocks:
		return concurrency.Resolve
	case w.command != command.Prepare:
		return concurrency.Plain
	case w.pending.Request.GetPrepare().GetOnePhase() != nil:
		return concurrency.Commit
	}
	return concurrency.Acquire
}

// waiter is the write as one that waits.
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
		Deadline: deadline(&w.pending), Size: w.size, History: &w.x.history}
	return &p.Waiter
}

// mayDoNothing says that the command can be answered, for good, without having written anything.
func (w *write) mayDoNothing() bool {
	return w.internal == nil && w.command.CanDoNothing(w.pending.Request)
}

// blocked looks for locks in the way of a write that is no transaction's. If there is one, the
// write waits for it, or is refused.
func (e *evaluation) blocked(w *write) bool {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.Is(e.epoch) {
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

// lockInTheWayLocked is the first lock of a key that a request writes, or of a span that the key
// lies in, and the key.
func (r *Replica) lockInTheWayLocked(q *kvpb.Request) (l *lock, key string) {
	f := command.Of(q).Footprint(q)
	for k := range f.Keys {
		if l := r.mu.locks.OnKey(k); l != nil {
			return l, text(k)
		}
	}
	for start, end := range f.EachSpan {
		if l, key := r.mu.locks.InSpan(start, end); l != nil {
			return l, key
		}
	}
	return nil, ""
}

// waitLocked has a write wait for a lock that is in its way at a key. If too much waits it returns
// the refusal. When the evaluation is over, the transaction whose lock it is is asked about.
func (e *evaluation) waitLocked(w *write, l *lock, key string,
	until concurrency.Until) (refusal *kvpb.Response) {
	r := e.r
	if !r.mu.locks.MayWait(w.size) {
		return r.refuse.Overloaded(w.pending.Request, "writes wait for transactions' locks")
	}
	r.mu.locks.Wait(w.waiter(), l, key, until, e.now)
	e.reevaluate = true
	return nil
}

// requeueLocked puts what waited back to the front of the queue, in the order in which it came.
func (r *Replica) requeueLocked(woken []*concurrency.Waiter) {
	if len(woken) == 0 {
		return
	}
	r.mu.locks.Leave(woken)
	writes := make([]write, len(woken))
	for i, p := range woken {
		writes[i] = *writeOf(p)
	}
	r.mu.queue.PushFront(writes)
	r.node.Metrics.Writes.Queued.Add(float64(len(writes)))
}

// attemptEndsLocked notes that a write that has waited waits no longer, and is not in the queue.
func (r *Replica) attemptEndsLocked(w *write) {
	if w.x != nil && w.mayDoNothing() {
		r.mu.locks.EndAttempt(w.requestID(), &w.x.history)
	}
}

// retriedSince says that a later attempt of a write that has waited was evaluated meanwhile.
func (e *evaluation) retriedSince(w *write) bool {
	if w.conflict() == nil || !w.mayDoNothing() {
		return false // it has not waited
	}
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attemptEndsLocked(w)
	return w.x.history.Retried
}

// answerNothingDone answers a write that writes nothing, because of what was read, and sees to it
// that no earlier attempt does. sequence is that of answerRead.
func (e *evaluation) answerNothingDone(w *write, response *kvpb.Response, sequence uint64) {
	r := e.r
	r.mu.Lock()
	r.mu.locks.EndEarlierAttempt(w.requestID())
	r.mu.Unlock()
	e.answerRead(w, response, sequence)
}
