package locks

import "slices"

// Wait makes w wait for a lock, behind the requests that already do.
func (t *Table[W]) Wait(l *Lock[W], w W, until Until) {
	of := l.Transaction
	of.waiters = append(of.waiters, waiter[W]{l, w, until})
	l.waiting++
	t.waiters++
	t.awaited[of] = struct{}{}
}

// WaitAll makes several requests wait for a lock, in their order, behind those that already do.
func (t *Table[W]) WaitAll(l *Lock[W], all []W, until Until) {
	l.Transaction.waiters = slices.Grow(l.Transaction.waiters, len(all))
	for _, w := range all {
		t.Wait(l, w, until)
	}
}

// Waiters returns the number of requests that wait.
func (t *Table[W]) Waiters() int { return t.waiters }

// EachAwaited calls visit for the transactions that have waiters, in no certain order. visit must
// not change the table.
func (t *Table[W]) EachAwaited(visit func(*Transaction[W])) {
	for x := range t.awaited {
		visit(x)
	}
}

// TakeWaiters takes out the waiters for which gone returns true.
func (t *Table[W]) TakeWaiters(gone func(w W) bool) (taken []W) {
	for x := range t.awaited {
		taken = append(taken, t.take(x, func(w *waiter[W]) bool { return gone(w.waits) })...)
	}
	return taken
}

// Drain takes out all waiters.
func (t *Table[W]) Drain() []W { return t.TakeWaiters(func(W) bool { return true }) }

// wake takes out the requests that wait for a lock until what has happened: UntilGone ends all
// waits.
func (t *Table[W]) wake(l *Lock[W], happened Until) []W {
	if l.waiting == 0 {
		return nil
	}
	if of := l.Transaction; happened == UntilGone && l.waiting == len(of.waiters) {
		// This is the usual case, and with many waiters the general one is slow.
		taken := make([]W, l.waiting)
		for i := range of.waiters {
			taken[i] = of.waiters[i].waits
		}
		t.waiters -= l.waiting
		l.waiting, of.waiters = 0, nil
		delete(t.awaited, of)
		return taken
	}
	return t.take(l.Transaction, func(w *waiter[W]) bool {
		return w.lock == l && w.until <= happened
	})
}

// take takes out the waiters of a transaction for which gone returns true, and keeps the order.
func (t *Table[W]) take(x *Transaction[W], gone func(*waiter[W]) bool) (taken []W) {
	x.waiters = slices.DeleteFunc(x.waiters, func(w waiter[W]) bool {
		if !gone(&w) {
			return false
		}
		taken = append(taken, w.waits)
		w.lock.waiting--
		t.waiters--
		return true
	})
	if len(x.waiters) == 0 {
		x.waiters = nil
		delete(t.awaited, x)
	}
	return taken
}
