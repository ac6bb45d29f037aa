package replica

import (
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// An attempt of a transaction that was aborted may still wait for locks. Nobody wants these any more: if it got one, others would wait for it until
// they have found out, and while it waits it has younger ones aborted, for nothing. So its requests are answered as soon as the partition
// hears of the abort: when it is the coordinator and decides so, or when the attempt's locks are ended here. So are those of one that goes on without
// what it has asked for, and commits in one phase; and those that would lay locks for a client that is not connected any more.

// unwanted says that a request which is to lay locks has waited for one, and that its client is not there any more. It would get a lock that nobody
// ends: a client that died with many that wait for one key would hold up others with one after the other, each for as long as it takes until
// nothing has been heard of it for too long. A client that comes back sends again what it still wants, and then waits at the end of the line.
func (e *evaluation) unwanted(w *write) bool {
	if w.x == nil || w.x.conflict == nil || !e.r.pointless(w) {
		return false
	}
	e.r.node.Metrics.writesUnwanted.Inc()
	return true
}

// pointless says that a request is to lay locks for a client that is not there any more. The replica's lock may be held.
func (r *Replica) pointless(w *write) bool {
	prepare := w.pending.Request.GetPrepare()
	return prepare != nil && prepare.OnePhase == nil && r.node.Gone != nil && r.node.Gone(w.pending.Client)
}

// unwantedError is for those that nobody waits for.
func (r *Replica) unwantedError(q *kvpb.Request) *kvpb.Response {
	return newError(q, kvpb.ErrorCode_LOCKED, "partition %s: the request waited for a lock, and its client is not connected any more; it did not run", r.id)
}

// endWaitOf has requests of a transaction that was just aborted here wait for locks no longer. They find the record.
func (e *evaluation) endWaitOf(of txn.ID) {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.reign != e.reign || r.mu.locks.Waiters() == 0 {
		return
	}
	released := r.mu.locks.TakeWaiters(func(p *parked) bool { return p.command == command.Prepare && p.transaction().ID == of })
	for _, p := range released {
		p.x.aborted = true
	}
	r.requeueLocked(released)
}

// refusedAborted answers a Prepare that waited when its transaction was aborted here. It returns false if there is nothing to answer.
func (e *evaluation) refusedAborted(w *write) (bool, error) {
	if !w.x.aborted {
		return false, nil
	}
	record, sequence, err := e.record(w.transaction())
	if err != nil || !record.Decided() || record.State != kvpb.TransactionState_ABORTED {
		return false, err
	}
	e.answerRead(w, &kvpb.Response{Id: w.pending.Request.Id, Error: e.r.abortedError(w.transaction(), record)}, sequence)
	return true, nil
}

// endWaitOfCommitted has requests of a transaction that has just committed here in one phase wait for locks no longer. Its client does not wait
// for them any more: it has cancelled them, of which nobody here was told. The transaction leaves no record, so a lock that one of them got
// would stand until the transaction is taken for abandoned.
func (e *evaluation) endWaitOfCommitted(of txn.ID) {
	r := e.r
	r.mu.Lock()
	if r.mu.reign != e.reign || r.mu.locks.Waiters() == 0 {
		r.mu.Unlock()
		return
	}
	late := r.mu.locks.TakeWaiters(func(p *parked) bool {
		prepare := p.pending.Request.GetPrepare()
		return prepare != nil && prepare.OnePhase == nil && p.transaction().ID == of
	})
	for _, p := range late {
		r.leftLocked(p)
	}
	r.mu.Unlock()
	for _, p := range late {
		e.refuse(&p.write, command.Invalid("transaction %s commits without this request, which waits for a lock; it did not run", of).Response(p.pending.Request))
		e.tend = true
	}
}

// withdraw answers requests of transactions that wait for locks and of which it was said that they are aborted. (A commit in one phase
// waits in the partition of its coordinator, and is told by the record.)
func (e *evaluation) withdraw(all ...*kvpb.Resolution) {
	r := e.r
	r.mu.Lock()
	if r.mu.reign != e.reign || r.mu.locks.Waiters() == 0 {
		r.mu.Unlock()
		return
	}
	aborted := make(map[txn.ID]*kvpb.TransactionStatus)
	for _, x := range all {
		if x.GetStatus().GetState() == kvpb.TransactionState_ABORTED {
			aborted[txn.ID(x.Transaction)] = x.Status
		}
	}
	var withdrawn []*parked
	if len(aborted) > 0 {
		withdrawn = r.mu.locks.TakeWaiters(func(p *parked) bool {
			prepare := p.pending.Request.GetPrepare()
			return prepare != nil && prepare.OnePhase == nil && aborted[p.transaction().ID] != nil
		})
	}
	for _, p := range withdrawn {
		r.leftLocked(p)
	}
	r.mu.Unlock()
	for _, p := range withdrawn {
		status := aborted[p.transaction().ID]
		record := &txn.Record{State: status.State, Reason: status.Reason}
		record.Wounder, record.Wanted = txn.WoundOf(status)
		record.Limit = txn.LimitOf(status)
		e.refuse(&p.write, &kvpb.Response{Id: p.pending.Request.Id, Error: r.abortedError(p.transaction(), record)})
		e.tend = true
	}
}
