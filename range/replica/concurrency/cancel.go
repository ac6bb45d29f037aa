package concurrency

import "github.com/tidemarkdb/tidemark/txn"

// An attempt of a transaction that was aborted may still wait for locks. They are of no use to it
// any more: if it got one, others would wait for it until they have found out, and while it waits
// it has younger transactions aborted, for nothing. So its requests are cancelled as soon as the
// partition hears of the abort: when it is the coordinator and decides so, or when the attempt's
// locks are released here. So are those of a transaction that goes on without what it has asked
// for, and commits in one phase.
//
// A commit in one phase waits in the partition of its coordinator, and is told by the record.

// Cancel takes out what waits to acquire locks for transactions that are over, as over says of each
// that waits so. The owner answers it. Manager.Reevaluate is to follow.
func (ws *Writes) Cancel(over func(*Waiter) bool) (cancelled []*Waiter) {
	if ws.table.Waiters() == 0 {
		return nil
	}
	cancelled = ws.table.TakeWaiters(func(w *Waiter) bool {
		return w.Kind == Acquire && over(w)
	})
	for _, w := range cancelled {
		ws.LeaveOne(w)
	}
	return cancelled
}

// Aborted wakes the requests of a transaction that was just aborted here as its coordinator. They
// find the record when they are evaluated again.
func (ws *Writes) Aborted(of txn.ID) (woken []*Waiter) {
	if ws.table.Waiters() == 0 {
		return nil
	}
	woken = ws.table.TakeWaiters(func(w *Waiter) bool {
		return (w.Kind == Acquire || w.Kind == Commit) && w.Transaction == of
	})
	for _, w := range woken {
		w.History.Aborted = true
	}
	return woken
}
