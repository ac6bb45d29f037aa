package concurrency

import "github.com/tidemarkdb/tidemark/txn"

// An attempt of a transaction that was aborted may still wait for locks, which are useless to it:
// if it got one, others would wait for that lock until they found out, and while it waits it has
// younger transactions aborted for nothing. So its requests are cancelled as soon as the partition
// learns of the abort: when it decides so as the coordinator, or when the attempt's locks are
// released here. The requests of a transaction that gives up waiting, and commits in one phase, are
// cancelled too.
//
// A commit in one phase waits in the partition of its coordinator, and learns of the abort from the
// record.

// Cancel takes out the requests that wait to acquire locks for transactions for which over returns
// true. The owner answers them. It must call Manager.Reevaluate afterwards.
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

// Aborted wakes the requests of a transaction that was just aborted here by its coordinator. They
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
