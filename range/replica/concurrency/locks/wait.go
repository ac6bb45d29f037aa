package locks

import "slices"

// Until says what a waiter waits for.
type Until uint8

const (
	// UntilApplied: nothing of the lock is in flight any more. (Or it is gone.)
	UntilApplied Until = iota
	// UntilGone: the lock is gone.
	UntilGone
)

// waiter waits for a lock.
type waiter[W any] struct {
	lock  *Lock[W]
	waits W
	until Until
}

// Wait has w wait for a lock, behind what does already.
func (t *Table[W]) Wait(l *Lock[W], w W, until Until) {
	of := l.Transaction
	of.waiters = append(of.waiters, waiter[W]{l, w, until})
	l.waiting++
	t.waiters++
	t.awaited[of] = struct{}{}
}

// WaitAll has several wait for a lock, in their order, behind what does already.
func (t *Table[W]) WaitAll(l *Lock[W], all []W, until Until) {
	l.Transaction.waiters = slices.Grow(l.Transaction.waiters, len(all))
	for _, w := range all {
		t.Wait(l, w, until)
	}
}

// Waiters is the number of all that wait.
func (t *Table[W]) Waiters() int { return t.waiters }

// EachAwaited calls visit for the transactions that have waiters, in no certain order. visit must
// not change the table.
func (t *Table[W]) EachAwaited(visit func(*Transaction[W])) {
	for x := range t.awaited {
		visit(x)
	}
}

// TakeWaiters takes out the waiters of which gone says so.
func (t *Table[W]) TakeWaiters(gone func(w W) bool) (taken []W) {
	for x := range t.awaited {
		taken = append(taken, t.take(x, func(w *waiter[W]) bool { return gone(w.waits) })...)
	}
	return taken
}

// Drain takes out all that wait.
func (t *Table[W]) Drain() []W { return t.TakeWaiters(func(W) bool { return true }) }

// wake takes out what waits for a lock until what has happened: UntilGone is the end of all
// waiting.
func (t *Table[W]) wake(l *Lock[W], happened Until) []W {
	if l.waiting == 0 {
		return nil
	}
	if of := l.Transaction; happened == UntilGone && l.waiting == len(of.waiters) {
		// The usual case, and with many waiters an expensive one.
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

// take takes out those of a transaction's waiters of which gone says so, and keeps the order.
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
