package eval

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Requests that need no longer wait for locks.

// disconnected reports that a request which acquires locks has waited for one, and that its client
// is no longer connected.
func (e *evaluation) disconnected(w *write) bool {
	if w.conflict() == nil || !e.r.Mu.Locks.Writes.Disconnected(w.waitKind(), w.pending.Client) {
		return false
	}
	e.r.Node.Metrics.Transactions.Disconnected.Inc()
	return true
}

// wakeAborted ends the wait of requests whose transaction was just aborted here. They find the
// record.
func (e *evaluation) wakeAborted(of txn.ID) {
	r := e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Mu.Leadership.Is(e.epoch) {
		r.RequeueLocked(r.Mu.Locks.Writes.Aborted(of))
	}
}

// cancelCommitted ends the wait of requests whose transaction has just committed here in one phase.
// Its client no longer waits for them: it has cancelled them, and does not tell the partition. The
// transaction leaves no record, so a lock that such a request got would stand until the transaction
// is taken for abandoned.
func (e *evaluation) cancelCommitted(of *txn.Info) {
	same := func(p *concurrency.Waiter) bool {
		waits := writeOf(p).transaction()
		return waits.Same(of)
	}
	for _, p := range e.cancel(same) {
		w := writeOf(p)
		e.refuse(w, request.Invalid("transaction %s commits without this request, which waits for a "+
			"lock; it did not run", of.ID).
			Response(w.pending.Request))
	}
}

// cancelAborted answers requests that wait for locks, if their transactions are among those that
// were reported as aborted.
func (e *evaluation) cancelAborted(all ...*kvpb.Resolution) {
	if !e.anyWaits() {
		return
	}
	aborted := make(map[txn.ID]*kvpb.Resolution)
	for _, x := range all {
		if x.GetStatus().GetState() == kvpb.TransactionState_ABORTED {
			aborted[txn.ID(x.Transaction)] = x
		}
	}
	if len(aborted) == 0 {
		return
	}
	over := func(p *concurrency.Waiter) bool {
		x, waits := aborted[p.Transaction], writeOf(p).transaction()
		return x != nil && decides(x, &waits)
	}
	for _, p := range e.cancel(over) {
		w, status := writeOf(p), aborted[p.Transaction].Status
		record := &txn.Record{State: status.State, Reason: status.Reason}
		record.Wounder, record.Wanted = txn.WoundOf(status)
		record.Limit = txn.LimitOf(status)
		e.refuse(w, &kvpb.Response{Id: w.pending.Request.Id,
			Error: command.AbortedBy(w.transaction(), record)})
	}
}

// anyWaits reports that writes wait for locks.
func (e *evaluation) anyWaits() bool {
	e.r.Mu.Lock()
	defer e.r.Mu.Unlock()
	return e.r.Mu.Locks.Waiters() > 0
}

// cancel takes out requests that wait to acquire locks, if their transactions are over.
func (e *evaluation) cancel(over func(*concurrency.Waiter) bool) []*concurrency.Waiter {
	r := e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if !r.Mu.Leadership.Is(e.epoch) {
		return nil
	}
	cancelled := r.Mu.Locks.Writes.Cancel(over)
	e.reevaluate = e.reevaluate || len(cancelled) > 0
	return cancelled
}

// decides reports that a resolution is of this transaction, and not of another one with the same
// id. Programs of earlier versions name no anchor, and keyspace 0; no transaction gets locks that
// names keyspace 0 as that of its anchor.
func decides(x *kvpb.Resolution, of *txn.Info) bool {
	return x.GetKeyspace() == 0 ||
		keys.KeyspaceID(x.GetKeyspace()) == of.Keyspace && bytes.Equal(x.GetAnchor(), of.Anchor)
}
