package concurrency

import (
	"iter"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency/locks"
	"github.com/tidemarkdb/tidemark/txn"
)

// How locks come and go. What each method requires of a lock is said in package locks.

// Change is what an applied entry does to the lock of a user key.
type Change struct {
	Key string
	// Released: the lock is gone. Otherwise it is of a transaction, and has a state.
	Released bool
	Of       txn.Info
	State    State
}

// Reset makes the locks those that a database holds. Nothing may wait.
func (m *Manager) Reset(found []Change) {
	m.table = locks.Table[*Waiter]{}
	m.Apply(found)
}

// Apply brings the locks up to what can be read from the engine. It returns the writes that waited
// for that.
func (m *Manager) Apply(changes []Change) (woken []*Waiter) {
	for i := range changes {
		c := &changes[i]
		if c.Released {
			woken = append(woken, m.table.Release(c.Key)...)
		} else {
			woken = append(woken, m.table.Apply(c.Key, c.Of, c.State)...)
		}
	}
	m.count()
	return woken
}

// Acquire puts a lock in flight, with the proposal that has a sequence.
func (m *Manager) Acquire(key string, of txn.Info, s State, sequence uint64) {
	m.table.Acquire(key, of, s, sequence)
	m.count()
}

// AcquireVolatile makes a volatile lock.
func (m *Manager) AcquireVolatile(key string, of txn.Info, s State) {
	m.table.AcquireVolatile(key, of, s)
	m.count()
}

// AcquireSpans makes span locks of what no transaction has of spans, all of that or nothing: it
// returns false if that is more than may be held (span_budget.go).
func (m *Manager) AcquireSpans(spans iter.Seq2[[]byte, []byte], of txn.Info, s State) bool {
	count, bytes := 0, 0
	for start, end := range spans {
		n, size := m.table.SpanNeed(text(start), text(end))
		count, bytes = count+n, bytes+size
	}
	switch {
	case count == 0:
		return true
	case m.table.Spans()+count > m.config.MaxSpanLocks || !m.config.spans.fits(count, bytes):
		return false
	}
	for start, end := range spans {
		m.table.AcquireSpan(text(start), text(end), of, s)
	}
	m.count()
	return true
}

// MarkReleased puts the release of a lock in flight, with the proposal that has a sequence.
func (m *Manager) MarkReleased(l *Lock, sequence uint64) { m.table.MarkReleased(l, sequence) }

// Release ends a volatile lock, and returns the writes that waited for it.
func (m *Manager) Release(l *Lock) (woken []*Waiter) {
	woken = m.table.ReleaseLock(l)
	m.count()
	return woken
}

// Full says that n more keys may not be locked.
func (m *Manager) Full(n int) bool { return m.table.Len()+n > m.config.MaxLocks }

// Get is the lock of a user key; nil if it has none of its own.
func (m *Manager) Get(key string) *Lock { return m.table.Get(key) }

// Has says whether a lock still exists.
func (m *Manager) Has(l *Lock) bool { return m.table.Has(l) }

// Empty says that nothing is locked: no key and no span.
func (m *Manager) Empty() bool { return m.table.Empty() }

// Len is the number of locked keys.
func (m *Manager) Len() int { return m.table.Len() }

// Transaction is the transaction with an id and an anchor; nil if it has no lock here.
func (m *Manager) Transaction(of *txn.Info) *Transaction { return m.table.Transaction(of) }

// EachNamed calls visit for the transactions with an id that have locks here: there may be several,
// with different anchors. visit must not change anything.
func (m *Manager) EachNamed(id txn.ID, visit func(*Transaction)) { m.table.EachNamed(id, visit) }

// Each calls visit for the locks of keys in [start, end), in their order, until it returns false.
// An empty end is none.
func (m *Manager) Each(start, end string,
	visit func(*Lock) bool) {
	m.table.Ascend(start, end, visit)
}

// EachSpan calls visit for the span locks that have keys in common with [start, end), in their
// order, until it returns false.
func (m *Manager) EachSpan(start, end string, visit func(*Lock) bool) {
	m.table.SpansIn(start, end, visit)
}

// OnKey is the lock in the way of a write of a key that is of no transaction: of the key, or of a
// span that it lies in; nil if there is none.
func (m *Manager) OnKey(key []byte) *Lock {
	if l := m.table.Get(text(key)); l != nil {
		return l
	}
	return m.table.SpanAt(text(key))
}

// InSpan is the first lock in the way of a write to all keys of [start, end) that is of no
// transaction, of a key or of a span, and the first key where it is in the way.
func (m *Manager) InSpan(start, end []byte) (l *Lock, key string) {
	if l = m.KeyIn(text(start), text(end), txn.ID{}); l != nil {
		return l, l.Key
	}
	if l = m.SpanIn(text(start), text(end), txn.ID{}); l != nil {
		return l, max(text(start), l.Key)
	}
	return nil, ""
}

// SpanIn is the first span lock of another transaction that has keys in common with [start, end).
func (m *Manager) SpanIn(start, end string, own txn.ID) (found *Lock) {
	m.table.SpansIn(start, end, func(l *Lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// SpanOver is the span lock of another transaction that a key lies in; nil if there is none.
func (m *Manager) SpanOver(key string, own txn.ID) *Lock {
	if l := m.table.SpanAt(key); l != nil && l.Transaction.ID != own {
		return l
	}
	return nil
}

// KeyIn is the first lock of another transaction on a key of [start, end).
func (m *Manager) KeyIn(start, end string, own txn.ID) (found *Lock) {
	m.table.Ascend(start, end, func(l *Lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// Spans is the number of span locks.
func (m *Manager) Spans() int { return m.table.Spans() }

// SpansInTheWay is the first span lock of another transaction that has keys in common with spans,
// and the first such key. oldest says that the transaction is older than all that have one.
//
// A transaction that is the oldest acquires the rest of the spans at once: it would wait until all
// of them are free at one moment otherwise, which among many that have one each may never come.
func (m *Manager) SpansInTheWay(spans iter.Seq2[[]byte, []byte], begun hlc.Timestamp, id txn.ID) (
	first *Lock, key string, oldest bool) {
	oldest = true
	for start, end := range spans {
		m.table.SpansIn(text(start), text(end), func(l *Lock) bool {
			x := l.Transaction
			if x.ID == id {
				return true
			}
			if first == nil {
				first, key = l, max(text(start), l.Key)
			}
			oldest = txn.Older(begun, id, x.Begun, x.ID)
			return oldest
		})
		if !oldest {
			break
		}
	}
	return first, key, oldest
}

// text is a string of the same memory as b, which must not be changed as long as the string lives.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// LockBytes is about what the release of an applied lock takes in an entry.
func LockBytes(l *Lock, committed bool) int {
	n := len(l.Key) + lockOverhead
	if committed {
		n += l.Applied.Size
	}
	return n
}

// lockOverhead is about what a lock takes in an entry besides key, value and anchor.
const lockOverhead = 128
