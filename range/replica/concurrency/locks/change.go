package locks

import "github.com/tidemarkdb/tidemark/txn"

// Acquire puts a state in flight: a new lock, or another state of the transaction's lock. The key
// must be free or locked by the transaction, with no change in flight; sequence is not 0.
func (t *Table[W]) Acquire(key string, of txn.Info, s State, sequence uint64) {
	l := t.lock(key, of)
	l.Transaction.Acquired = max(l.Transaction.Acquired, s.Acquired)
	l.Proposed, l.Sequence = &s, sequence
	t.changing[l] = struct{}{}
}

// MarkReleased notes that the release of a lock is in flight. No other change of it may be.
func (t *Table[W]) MarkReleased(l *Lock[W], sequence uint64) {
	l.Sequence = sequence
	t.changing[l] = struct{}{}
}

// Apply puts a state from the engine into the table, in place of the former one, and returns the
// requests that waited for that.
func (t *Table[W]) Apply(key string, of txn.Info, s State) (woken []W) {
	if l := t.Get(key); l != nil && !l.Transaction.Same(&of) {
		woken = t.ReleaseKey(key)
	}
	l := t.lock(key, of)
	l.Transaction.Acquired = max(l.Transaction.Acquired, s.Acquired)
	l.Applied = &s
	delete(t.volatile, l)
	t.settle(l)
	return append(woken, t.wake(l, UntilApplied)...)
}

// AcquireVolatile makes a volatile lock. The key must be free, or under a volatile lock of the
// transaction with no change in flight.
func (t *Table[W]) AcquireVolatile(key string, of txn.Info, s State) {
	l := t.lock(key, of)
	l.Transaction.Acquired = max(l.Transaction.Acquired, s.Acquired)
	s.Volatile = true
	l.Applied = &s
	t.volatile[l] = struct{}{}
}

// ReleaseKey removes the lock of a key, whose release is in the engine, and returns all requests
// that waited for it.
func (t *Table[W]) ReleaseKey(key string) (woken []W) {
	l := t.Get(key)
	if l == nil {
		return nil
	}
	return t.Release(l)
}

// Release is ReleaseKey for a lock of a key or a span that is in the table.
func (t *Table[W]) Release(l *Lock[W]) (woken []W) {
	woken = t.wake(l, UntilGone)
	t.drop(l)
	return woken
}

// Has reports whether a lock is still in the table.
func (t *Table[W]) Has(l *Lock[W]) bool {
	if !l.Span {
		return t.Get(l.Key) == l
	}
	return t.SpanAt(l.Key) == l
}

// DropInFlight forgets all changes in flight, and volatile locks: the locks are as they are in the
// engine. All waiters must have been taken out (Drain).
func (t *Table[W]) DropInFlight() {
	for l := range t.volatile {
		delete(t.volatile, l)
		l.Applied = nil
		if !l.InFlight() {
			t.drop(l)
		}
	}
	for l := range t.changing {
		if l.Applied == nil {
			t.drop(l)
		} else {
			t.settle(l)
		}
	}
}

// InFlight returns the number of locks with a change in flight.
func (t *Table[W]) InFlight() int { return len(t.changing) }

// lock returns the lock of a key, which is the transaction's own or new.
func (t *Table[W]) lock(key string, of txn.Info) *Lock[W] {
	t.make()
	if l := t.Get(key); l != nil {
		return l
	}
	l := t.add(&Lock[W]{Key: key}, of)
	t.byKey.ReplaceOrInsert(key, l)
	return l
}

// settle notes that no change of a lock is in flight.
func (t *Table[W]) settle(l *Lock[W]) {
	l.Proposed, l.Sequence = nil, 0
	delete(t.changing, l)
}

// drop removes a lock.
func (t *Table[W]) drop(l *Lock[W]) {
	t.settle(l)
	delete(t.volatile, l)
	if l.Span {
		t.dropSpan(l)
	} else {
		t.byKey.Delete(l.Key)
	}
	t.remove(l)
	if t.byKey.Len() == 0 && len(t.spans) == 0 {
		// Trees and maps do not shrink.
		t.spans = nil
		t.byKey, t.byID, t.changing, t.volatile, t.awaited = nil, nil, nil, nil, nil
	}
}
