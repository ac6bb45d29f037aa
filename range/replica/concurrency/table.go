package concurrency

import (
	"iter"
	"sync/atomic"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency/locks"
	"github.com/tidemarkdb/tidemark/txn"
)

// How locks come and go. What each method requires of a lock is said in package locks.

// Table is the lock table of a partition, with what its node counts of all tables. Every change of
// the locks goes through a method of this type: it counts afterwards.
type Table struct {
	locks.Table[*Waiter]
	config *Config
	// held is the number of locks in the table, of keys and of spans.
	held    atomic.Int64
	counted counted
}

// Held is the number of locks that there are, of keys and of spans. It is an atomic: the owner's
// lock need not be held.
func (t *Table) Held() int64 { return t.held.Load() }

// Change is what an applied entry does to the lock of a user key.
type Change struct {
	Key string
	// Released: the lock is gone. Otherwise it is of a transaction, and has a state.
	Released bool
	Of       txn.Info
	State    State
}

// Reset makes the locks those that a database holds. Nothing may wait.
func (t *Table) Reset(found []Change) {
	t.Table = locks.Table[*Waiter]{}
	t.Apply(found)
}

// Apply brings the locks up to what can be read from the engine. It returns the writes that waited
// for that.
func (t *Table) Apply(changes []Change) (woken []*Waiter) {
	for i := range changes {
		c := &changes[i]
		if c.Released {
			woken = append(woken, t.ReleaseKey(c.Key)...)
		} else {
			woken = append(woken, t.Table.Apply(c.Key, c.Of, c.State)...)
		}
	}
	t.count()
	return woken
}

// Acquire puts a lock in flight, with the proposal that has a sequence.
func (t *Table) Acquire(key string, of txn.Info, s State, sequence uint64) {
	t.Table.Acquire(key, of, s, sequence)
	t.count()
}

// AcquireVolatile makes a volatile lock.
func (t *Table) AcquireVolatile(key string, of txn.Info, s State) {
	t.Table.AcquireVolatile(key, of, s)
	t.count()
}

// AcquireSpans makes span locks of what no transaction has of spans, all of that or nothing: it
// returns false if that is more than may be held (spanBudget).
func (t *Table) AcquireSpans(spans iter.Seq2[[]byte, []byte], of txn.Info, s State) bool {
	count, bytes := 0, 0
	for start, end := range spans {
		n, size := t.SpanNeed(text(start), text(end))
		count, bytes = count+n, bytes+size
	}
	switch {
	case count == 0:
		return true
	case t.Spans()+count > t.config.MaxSpanLocks || !t.config.spans.fits(count, bytes):
		return false
	}
	for start, end := range spans {
		t.AcquireSpan(text(start), text(end), of, s)
	}
	t.count()
	return true
}

// Release ends a volatile lock, and returns the writes that waited for it.
func (t *Table) Release(l *Lock) (woken []*Waiter) {
	woken = t.Table.Release(l)
	t.count()
	return woken
}

// DropInFlight forgets all that is in flight, and volatile. Nothing may wait.
func (t *Table) DropInFlight() {
	t.Table.DropInFlight()
	t.count()
}

// Full says that n more keys may not be locked.
func (t *Table) Full(n int) bool { return t.Len()+n > t.config.MaxLocks }

// OnKey is the lock in the way of a write of a key that is of no transaction: of the key, or of a
// span that it lies in; nil if there is none.
func (t *Table) OnKey(key []byte) *Lock {
	if l := t.Get(text(key)); l != nil {
		return l
	}
	return t.SpanAt(text(key))
}

// InSpan is the first lock in the way of a write to all keys of [start, end) that is of no
// transaction, of a key or of a span, and the first key where it is in the way.
func (t *Table) InSpan(start, end []byte) (l *Lock, key string) {
	if l = t.KeyIn(text(start), text(end), txn.ID{}); l != nil {
		return l, l.Key
	}
	if l = t.SpanIn(text(start), text(end), txn.ID{}); l != nil {
		return l, max(text(start), l.Key)
	}
	return nil, ""
}

// SpanIn is the first span lock of another transaction that has keys in common with [start, end).
func (t *Table) SpanIn(start, end string, own txn.ID) (found *Lock) {
	t.EachSpanIn(start, end, func(l *Lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// SpanOver is the span lock of another transaction that a key lies in; nil if there is none.
func (t *Table) SpanOver(key string, own txn.ID) *Lock {
	if l := t.SpanAt(key); l != nil && l.Transaction.ID != own {
		return l
	}
	return nil
}

// KeyIn is the first lock of another transaction on a key of [start, end).
func (t *Table) KeyIn(start, end string, own txn.ID) (found *Lock) {
	t.Each(start, end, func(l *Lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// SpansInTheWay is the first span lock of another transaction that has keys in common with spans,
// and the first such key. oldest says that the transaction is older than all that have one.
//
// A transaction that is the oldest acquires the rest of the spans at once: it would wait until all
// of them are free at one moment otherwise, which among many that have one each may never come.
func (t *Table) SpansInTheWay(spans iter.Seq2[[]byte, []byte], begun hlc.Timestamp, id txn.ID) (
	first *Lock, key string, oldest bool) {
	oldest = true
	for start, end := range spans {
		t.EachSpanIn(text(start), text(end), func(l *Lock) bool {
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

// Intents is how many keys are locked by transactions that write them, by what this replica has
// applied: what is on its way does not count.
func (t *Table) Intents() (n int) {
	t.EachTransaction(func(x *Transaction) bool {
		x.Each(func(l *Lock) bool {
			if l.Applied != nil && !l.Applied.Volatile && l.Applied.Writes() {
				n++
			}
			return true
		})
		return true
	})
	return n
}

// Holds says that a transaction has a lock here that is not about to go.
func (t *Table) Holds(of *txn.Info) (holds bool) {
	if x := t.Transaction(of); x != nil {
		x.Each(func(l *Lock) bool {
			holds = !l.Releasing()
			return !holds
		})
	}
	return holds
}

// counted is what the node's gauges and bounds know of a partition's lock table.
type counted struct{ keys, spans, spanBytes int }

// count brings gauges and bounds up to date.
func (t *Table) count() {
	before := t.counted
	now := counted{keys: t.Len(), spans: t.Spans(), spanBytes: t.SpanBytes()}
	if now == before {
		return
	}
	t.counted = now
	t.held.Store(int64(now.keys + now.spans))
	t.config.Metrics.locks.Add(float64(now.keys - before.keys))
	if now.spans != before.spans {
		t.config.Metrics.spanLocks.Add(float64(now.spans - before.spans))
		t.config.spans.count.Add(int64(now.spans - before.spans))
		t.config.spans.bytes.Add(int64(now.spanBytes - before.spanBytes))
	}
}

// Close takes the locks out of what is counted: the owner is closed.
func (t *Table) Close() {
	t.config.Metrics.locks.Sub(float64(t.counted.keys))
	t.config.Metrics.spanLocks.Sub(float64(t.counted.spans))
	t.config.spans.count.Add(-int64(t.counted.spans))
	t.config.spans.bytes.Add(-int64(t.counted.spanBytes))
	t.counted = counted{}
	t.held.Store(0)
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
