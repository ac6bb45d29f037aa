package locks

import (
	"cmp"

	"github.com/RaduBerinde/btreemap"

	"github.com/tidemarkdb/tidemark/txn"
)

// Table is a partition's locks. W is what waits. The zero Table is empty and ready. It is not safe
// for concurrent use.
type Table[W any] struct {
	byKey *btreemap.BTreeMap[string, *Lock[W]]
	// byID are the transactions, by their ids: the first with an id, which leads to the others.
	byID         map[txn.ID]*Transaction[W]
	transactions int
	// changing are the locks of which a change is in flight, volatile those that are nowhere else.
	changing, volatile map[*Lock[W]]struct{}
	// spans are the span locks, and spanBytes how many bytes their bounds have (span.go).
	spans     []*Lock[W]
	spanBytes int
	// awaited are the transactions that have waiters.
	awaited map[*Transaction[W]]struct{}
	waiters int
}

// degree is of the tree's nodes.
const degree = 16

// Len is the number of locked keys.
func (t *Table[W]) Len() int {
	if t.byKey == nil {
		return 0
	}
	return t.byKey.Len()
}

// Get is the lock of a user key; nil if it is free.
func (t *Table[W]) Get(key string) *Lock[W] {
	if t.byKey == nil {
		return nil
	}
	_, l, _ := t.byKey.Get(key)
	return l
}

// Each calls visit for the locks of [start, end) in the order of their keys, until it returns
// false. An empty end is none. visit must not change the table.
func (t *Table[W]) Each(start, end string, visit func(*Lock[W]) bool) {
	if t.byKey == nil {
		return
	}
	stop := btreemap.Max[string]()
	if end != "" {
		stop = btreemap.LT(end)
	}
	t.byKey.AscendFunc(btreemap.GE(start), stop, func(_ string, l *Lock[W]) bool { return visit(l) })
}

// Acquire puts a state in flight: a new lock, or another state of one that the transaction has. The
// key must be free or the transaction's, and nothing of it in flight; sequence is not 0.
func (t *Table[W]) Acquire(key string, of txn.Info, s State, sequence uint64) {
	l := t.lock(key, of)
	l.Transaction.Acquired = max(l.Transaction.Acquired, s.Acquired)
	l.Proposed, l.Sequence = &s, sequence
	t.changing[l] = struct{}{}
}

// MarkReleased says that the release of a lock is in flight. Nothing else of it may be.
func (t *Table[W]) MarkReleased(l *Lock[W], sequence uint64) {
	l.Sequence = sequence
	t.changing[l] = struct{}{}
}

// Apply puts a state that is in the engine into the table, in place of what was there, and returns
// what waited for that.
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
// transaction with nothing of it in flight.
func (t *Table[W]) AcquireVolatile(key string, of txn.Info, s State) {
	l := t.lock(key, of)
	l.Transaction.Acquired = max(l.Transaction.Acquired, s.Acquired)
	s.Volatile = true
	l.Applied = &s
	t.volatile[l] = struct{}{}
}

// ReleaseKey takes out the lock of a key, whose release is in the engine, and returns all that
// waited for it.
func (t *Table[W]) ReleaseKey(key string) (woken []W) {
	l := t.Get(key)
	if l == nil {
		return nil
	}
	return t.Release(l)
}

// Release is ReleaseKey of a lock that is in the table, be it of a key or of a span.
func (t *Table[W]) Release(l *Lock[W]) (woken []W) {
	woken = t.wake(l, UntilGone)
	t.drop(l)
	return woken
}

// Has says whether a lock is in the table still.
func (t *Table[W]) Has(l *Lock[W]) bool {
	if !l.Span {
		return t.Get(l.Key) == l
	}
	return t.SpanAt(l.Key) == l
}

// DropInFlight forgets all that is in flight, and volatile: the locks are what they are in the
// engine. What waits must have been taken out (Drain).
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

// InFlight is the number of locks of which a change is in flight.
func (t *Table[W]) InFlight() int { return len(t.changing) }

// lock is the lock of a key, which is the transaction's own or new.
func (t *Table[W]) lock(key string, of txn.Info) *Lock[W] {
	t.make()
	if l := t.Get(key); l != nil {
		return l
	}
	l := t.add(&Lock[W]{Key: key}, of)
	t.byKey.ReplaceOrInsert(key, l)
	return l
}

// make makes sure that there is room for locks.
func (t *Table[W]) make() {
	if t.byKey != nil {
		return
	}
	t.byKey = btreemap.New[string, *Lock[W]](degree, cmp.Compare[string])
	t.byID = make(map[txn.ID]*Transaction[W])
	t.changing, t.volatile = make(map[*Lock[W]]struct{}), make(map[*Lock[W]]struct{})
	t.awaited = make(map[*Transaction[W]]struct{})
}

// add makes a lock one of a transaction's.
func (t *Table[W]) add(l *Lock[W], of txn.Info) *Lock[W] {
	x := t.enter(&of)
	l.Transaction, l.index = x, len(x.locks)
	x.locks = append(x.locks, l)
	if l.Span {
		x.spans++
	}
	return l
}

// settle says that nothing of a lock is in flight.
func (t *Table[W]) settle(l *Lock[W]) {
	l.Proposed, l.Sequence = nil, 0
	delete(t.changing, l)
}

// drop takes a lock out.
func (t *Table[W]) drop(l *Lock[W]) {
	t.settle(l)
	delete(t.volatile, l)
	of := l.Transaction
	if l.Span {
		t.dropSpan(l)
		of.spans--
	} else {
		t.byKey.Delete(l.Key)
	}
	last := len(of.locks) - 1
	of.locks[l.index] = of.locks[last]
	of.locks[l.index].index = l.index
	of.locks[last] = nil
	of.locks = of.locks[:last]
	if last == 0 {
		t.leave(of)
	}
	if t.byKey.Len() == 0 && len(t.spans) == 0 {
		// Trees and maps do not shrink.
		t.spans = nil
		t.byKey, t.byID, t.changing, t.volatile, t.awaited = nil, nil, nil, nil, nil
	}
}
