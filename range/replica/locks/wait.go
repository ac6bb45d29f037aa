package locks

import "slices"

// Until says what is waited for.
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
	who   W
	until Until
}

// Wait has somebody wait for a lock, behind those who do already.
func (t *Table[W]) Wait(l *Lock[W], who W, until Until) {
	of := l.Transaction
	of.waiters = append(of.waiters, waiter[W]{l, who, until})
	l.waiting++
	t.waiters++
	t.blocking[of] = struct{}{}
}

// WaitAll has several wait for a lock, in their order, behind those who do already.
func (t *Table[W]) WaitAll(l *Lock[W], all []W, until Until) {
	l.Transaction.waiters = slices.Grow(l.Transaction.waiters, len(all))
	for _, who := range all {
		t.Wait(l, who, until)
	}
}

// Waiters is the number of all who wait.
func (t *Table[W]) Waiters() int { return t.waiters }

// EachBlocking calls visit for the transactions that somebody waits for, in no certain order. visit must not change the table.
func (t *Table[W]) EachBlocking(visit func(*Transaction[W])) {
	for x := range t.blocking {
		visit(x)
	}
}

// TakeWaiters takes out those who wait and of whom gone says so.
func (t *Table[W]) TakeWaiters(gone func(w W) bool) (taken []W) {
	for x := range t.blocking {
		taken = append(taken, t.take(x, func(w *waiter[W]) bool { return gone(w.who) })...)
	}
	return taken
}

// Drain takes out all who wait.
func (t *Table[W]) Drain() []W { return t.TakeWaiters(func(W) bool { return true }) }

// release takes out those who wait for a lock until what has happened: UntilGone is the end of all waiting.
func (t *Table[W]) release(l *Lock[W], happened Until) []W {
	if l.waiting == 0 {
		return nil
	}
	if of := l.Transaction; happened == UntilGone && l.waiting == len(of.waiters) {
		// The usual case, and of many waiters a dear one.
		taken := make([]W, l.waiting)
		for i := range of.waiters {
			taken[i] = of.waiters[i].who
		}
		t.waiters -= l.waiting
		l.waiting, of.waiters = 0, nil
		delete(t.blocking, of)
		return taken
	}
	return t.take(l.Transaction, func(w *waiter[W]) bool { return w.lock == l && w.until <= happened })
}

// take takes out those of a transaction's waiters of whom gone says so, and keeps the order.
func (t *Table[W]) take(x *Transaction[W], gone func(*waiter[W]) bool) (taken []W) {
	x.waiters = slices.DeleteFunc(x.waiters, func(w waiter[W]) bool {
		if !gone(&w) {
			return false
		}
		taken = append(taken, w.who)
		w.lock.waiting--
		t.waiters--
		return true
	})
	if len(x.waiters) == 0 {
		x.waiters = nil
		delete(t.blocking, x)
	}
	return taken
}
