package concurrency

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency/locks"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A write that meets another transaction's lock, of its key or of a span around the key, waits for
// that lock. When the lock is gone, the write returns to the front of its owner's queue and is
// evaluated again, as if it had just come, because it has had no effect. It may then meet another
// lock.

// Kind classifies a write that waits.
type Kind uint8

const (
	// Plain: it belongs to no transaction.
	Plain Kind = iota
	// Acquire: it only acquires locks for its transaction.
	Acquire
	// Commit: it commits its transaction in one phase.
	Commit
	// Resolve: it releases the locks of decided transactions. Nothing hurries for it.
	Resolve
)

// Until says what a write waits for.
type Until = locks.Until

const (
	// UntilApplied: no change of the lock is in flight any more, or the lock is gone.
	UntilApplied = locks.UntilApplied
	// UntilGone: the lock is gone.
	UntilGone = locks.UntilGone
)

// Waiter is a write that waits for a lock.
type Waiter struct {
	// Element is the owner's write; this package does not use it.
	Element any
	// Request is the id of its request.
	Request mvcc.RequestID
	Kind    Kind
	// LowPriority is set if locks are not released any faster for it.
	LowPriority bool
	// MayDoNothing is set if it can be answered, for good, without having written anything
	// (attempts.go).
	MayDoNothing bool
	// Transaction is the write's transaction, zero if it has none; Begun is the transaction's
	// start.
	Transaction txn.ID
	Begun       hlc.Timestamp
	// Deadline is when its caller stops waiting; zero: never.
	Deadline time.Time
	// Size estimates its size in bytes.
	Size int
	// History holds what has happened to the write so far. This package writes it.
	History *History

	until locks.Until
	// order numbers the waiters in the order in which they came.
	order uint64
	since time.Time
}

// History records the waits of a write. The zero value belongs to a write that has not waited.
type History struct {
	// Conflict describes the lock for which it waited last; nil: it has not waited.
	Conflict *kvpb.Conflict
	// Retried is set if a later attempt of the request was evaluated while it waited.
	Retried bool
	// Aborted is set if its transaction was aborted here while it waited.
	Aborted bool
}

// Until returns what it waits for.
func (w *Waiter) Until() Until { return w.until }

// Since returns when it began to wait.
func (w *Waiter) Since() time.Time { return w.since }

func (w *Waiter) age() age { return age{w.Begun, w.Transaction} }

// hurries reports that locks must be released at once for it.
func (w *Waiter) hurries() bool { return w.Kind != Resolve && !w.LowPriority }

// Writes holds the writes of a partition that wait. The lock table has them, lock by lock.
type Writes struct {
	config *Config
	table  *Table
	// Attempts holds the writes that have waited and are not finished.
	Attempts Attempts
	// order is the number of the last write, and bytes the size of the writes that wait.
	order uint64
	bytes int
}

// Disconnected reports that a write is to acquire locks for a client that is not connected any
// more. If such a write has waited, it would get a lock that nothing releases: a client that died
// with many requests waiting for one key would block others with one after the other, each until
// the client counts as silent. A client that comes back sends again the requests that it still
// wants, and they wait at the end of the queue. The owner's lock need not be held.
func (ws *Writes) Disconnected(k Kind, client uint64) bool {
	return k == Acquire && ws.config.Disconnected != nil && ws.config.Disconnected(client)
}

func (ws *Writes) disconnected(w *Waiter) bool { return ws.Disconnected(w.Kind, w.Request.Client) }

// MayWait reports whether one more write, of a size, may wait.
func (ws *Writes) MayWait(size int) bool {
	waiting := ws.table.Waiters()
	return waiting < ws.config.MaxWaiters &&
		(waiting == 0 || ws.bytes+size <= ws.config.MaxWaiterBytes)
}

// Wait makes a write wait for a lock at a key, behind all that wait for that lock already. The
// owner must call Manager.Reevaluate afterwards.
func (ws *Writes) Wait(w *Waiter, l *Lock, key string, until Until, now time.Time) {
	w.History.Conflict = &kvpb.Conflict{Key: []byte(key), Transaction: l.Transaction.ID.Bytes()}
	ws.order++
	ws.bytes += w.Size
	w.until, w.order, w.since = until, ws.order, now
	ws.Attempts.waits(w)
	ws.table.Wait(l, w, until)
	ws.config.Metrics.writesWaited.Inc()
	if l.Span {
		ws.config.Metrics.spanWaits.Inc()
	}
}

// InOrder sorts woken writes into the order in which they came.
func InOrder(woken []*Waiter) {
	order := func(a, b *Waiter) int { return cmp.Compare(a.order, b.order) }
	if !slices.IsSortedFunc(woken, order) {
		slices.SortFunc(woken, order)
	}
}

// Leave notes that woken writes, of the present leadership epoch, wait no longer, and sorts them
// into the order in which they came.
func (ws *Writes) Leave(woken []*Waiter) {
	InOrder(woken)
	for _, w := range woken {
		ws.LeaveOne(w)
	}
}

// LeaveOne is Leave for one write.
func (ws *Writes) LeaveOne(w *Waiter) {
	ws.bytes -= w.Size
	ws.config.Metrics.lockWaits.Observe(since(w.since))
}

// WaitAgain makes woken writes, which are in order, wait for the lock that is on their key by now.
// It returns those whose key is free or locked by their own transaction.
func (ws *Writes) WaitAgain(woken []*Waiter) (free []*Waiter) {
	// The writes come key by key, mostly of one key.
	for len(woken) > 0 {
		key := woken[0].History.Conflict.Key
		n := 1
		for n < len(woken) && text(woken[n].History.Conflict.Key) == text(key) {
			n++
		}
		if l := ws.table.OnKey(key); l != nil {
			free = append(free, ws.waitTogether(l, woken[:n])...)
		} else {
			free = append(free, woken[:n]...)
		}
		woken = woken[n:]
	}
	return free
}

// waitTogether makes writes that have waited for one key wait for a lock, and returns those that
// need not wait for it.
func (ws *Writes) waitTogether(l *Lock, waiting []*Waiter) (free []*Waiter) {
	conflict := &kvpb.Conflict{Key: waiting[0].History.Conflict.Key,
		Transaction: l.Transaction.ID.Bytes()}
	from := 0
	flush := func(to int) { ws.table.WaitAll(l, waiting[from:to], UntilGone) }
	for i, w := range waiting {
		if l.Transaction.ID == w.Transaction || w.until != UntilGone {
			flush(i)
			free, from = append(free, w), i+1
			continue
		}
		w.History.Conflict = conflict
	}
	flush(len(waiting))
	return free
}

// Each calls visit for each write that waits, with the transaction for which it waits and the key,
// transaction by transaction.
func (ws *Writes) Each(visit func(x *Transaction, key string, w *Waiter)) {
	ws.table.EachAwaited(func(x *Transaction) {
		x.EachWaiter(func(key string, w *Waiter) { visit(x, key, w) })
	})
}
