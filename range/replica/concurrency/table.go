package concurrency

import (
	"iter"
	"sync/atomic"
	"unsafe"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency/locks"
	"github.com/tidemarkdb/tidemark/txn"
)

// Acquiring and releasing locks. Package locks says what each method requires.

// Table is the lock table of a partition, together with its share of the node's counts. Every
// change of the locks goes through a method of this type, which updates the counts afterwards.
type Table struct {
	locks.Table[*Waiter]
	config *Config
	// held is the number of locks in the table, of keys and of spans.
	held    atomic.Int64
	counted counted
}

// Held returns the number of locks of keys and of spans. It is an atomic: the owner's lock need not
// be held.
func (t *Table) Held() int64 { return t.held.Load() }

// Change is the effect of an applied entry on the lock of a user key.
type Change struct {
	Key string
	// Released is set if the lock is gone. Otherwise the other fields describe the lock.
	Released bool
	Of       txn.Info
	State    State
}

// Reset replaces the locks by those found in a database. No request may wait.
func (t *Table) Reset(found []Change) {
	t.Table = locks.Table[*Waiter]{}
	t.Apply(found)
}

// Apply updates the locks to what can be read from the engine. It returns the writes that waited
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

// Acquire adds a lock that is in flight, in the proposal with the given sequence.
func (t *Table) Acquire(key string, of txn.Info, s State, sequence uint64) {
	t.Table.Acquire(key, of, s, sequence)
	t.count()
}

// AcquireVolatile makes a volatile lock.
func (t *Table) AcquireVolatile(key string, of txn.Info, s State) {
	t.Table.AcquireVolatile(key, of, s)
	t.count()
}

// AcquireSpans locks the parts of spans that no transaction holds, all of them or none: it returns
// false if that exceeds the bound (spanBudget).
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

// DropInFlight forgets all locks that are in flight or volatile. No request may wait.
func (t *Table) DropInFlight() {
	t.Table.DropInFlight()
	t.count()
}

// Full reports that n more keys may not be locked.
func (t *Table) Full(n int) bool { return t.Len()+n > t.config.MaxLocks }

// OnKey returns the lock in the way of a write without a transaction to a key: a lock of the key,
// or of a span around it; nil if there is none.
func (t *Table) OnKey(key []byte) *Lock {
	if l := t.Get(text(key)); l != nil {
		return l
	}
	return t.SpanAt(text(key))
}

// InSpan returns the first lock in the way of a write without a transaction to all keys of [start,
// end), of a key or of a span, and the first key that it blocks.
func (t *Table) InSpan(start, end []byte) (l *Lock, key string) {
	if l = t.KeyIn(text(start), text(end), txn.ID{}); l != nil {
		return l, l.Key
	}
	if l = t.SpanIn(text(start), text(end), txn.ID{}); l != nil {
		return l, max(text(start), l.Key)
	}
	return nil, ""
}

// SpanIn returns the first span lock of another transaction that overlaps [start, end).
func (t *Table) SpanIn(start, end string, own txn.ID) (found *Lock) {
	t.EachSpanIn(start, end, func(l *Lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// SpanOver returns the span lock of another transaction around a key; nil if there is none.
func (t *Table) SpanOver(key string, own txn.ID) *Lock {
	if l := t.SpanAt(key); l != nil && l.Transaction.ID != own {
		return l
	}
	return nil
}

// KeyIn returns the first lock of another transaction on a key of [start, end).
func (t *Table) KeyIn(start, end string, own txn.ID) (found *Lock) {
	t.Each(start, end, func(l *Lock) bool {
		if l.Transaction.ID != own {
			found = l
		}
		return found == nil
	})
	return found
}

// SpansInTheWay returns the first span lock of another transaction that overlaps spans, and the
// first overlapping key. oldest reports that the transaction is older than all owners of such
// locks.
//
// The oldest transaction acquires the free parts of the spans at once. Otherwise it would wait
// until all are free at one moment, which may never happen among many transactions that have one
// each.
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

// Intents returns how many keys are locked by transactions that write them, as applied on this
// replica; entries on their way do not count.
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

// Holds reports that a transaction has a lock here that is not being released.
func (t *Table) Holds(of *txn.Info) (holds bool) {
	if x := t.Transaction(of); x != nil {
		x.Each(func(l *Lock) bool {
			holds = !l.Releasing()
			return !holds
		})
	}
	return holds
}

// counted holds a partition's share of the node's gauges and bounds.
type counted struct{ keys, spans, spanBytes int }

// count updates gauges and bounds.
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

// Close removes the locks from the counts, because the owner is closed.
func (t *Table) Close() {
	t.config.Metrics.locks.Sub(float64(t.counted.keys))
	t.config.Metrics.spanLocks.Sub(float64(t.counted.spans))
	t.config.spans.count.Add(-int64(t.counted.spans))
	t.config.spans.bytes.Add(-int64(t.counted.spanBytes))
	t.counted = counted{}
	t.held.Store(0)
}

// text returns a string that aliases b, which must not be changed as long as the string lives.
func text(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// LockBytes estimates the bytes in an entry that releases an applied lock.
func LockBytes(l *Lock, committed bool) int {
	n := len(l.Key) + lockOverhead
	if committed {
		n += l.Applied.Size
	}
	return n
}

// lockOverhead estimates the bytes of a lock in an entry besides key, value and anchor.
const lockOverhead = 128
