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

// A write that meets a lock which is not its own, of its key or of the span that this lies in,
// waits for that lock. When the lock is gone, the write goes back to the front of its owner's queue
// and is evaluated again, as if it had just come: nothing of it has happened. It may then meet
// another lock.

// Kind is what a write that waits is, as far as that matters here.
type Kind uint8

const (
	// Plain: it is of no transaction.
	Plain Kind = iota
	// Acquire: it acquires locks for its transaction, and does nothing else.
	Acquire
	// Commit: it commits its transaction, in one phase.
	Commit
	// Resolve: it releases the locks of decided transactions. Nothing hurries for it.
	Resolve
)

// Until says what a write waits for.
type Until = locks.Until

const (
	// UntilApplied: nothing of the lock is in flight any more. (Or it is gone.)
	UntilApplied = locks.UntilApplied
	// UntilGone: the lock is gone.
	UntilGone = locks.UntilGone
)

// Waiter is a write that waits for a lock.
type Waiter struct {
	// Element is the write. It belongs to the owner.
	Element any
	// Request is the id of its request.
	Request mvcc.RequestID
	Kind    Kind
	// LowPriority: locks are not released any faster for it.
	LowPriority bool
	// MayDoNothing: it can be answered, for good, without having written anything (attempts.go).
	MayDoNothing bool
	// Transaction is the write's, zero if it has none; Begun is its age.
	Transaction txn.ID
	Begun       hlc.Timestamp
	// Deadline is when its caller stops waiting; zero: never.
	Deadline time.Time
	// Size is about how large it is, in bytes.
	Size int
	// History is what is known of the write for as long as it lives. This package writes it.
	History *History

	until locks.Until
	// order numbers the waiters as they come.
	order uint64
	since time.Time
}

// History is what a write has met that waits, or has waited. The zero History is of one that has
// not.
type History struct {
	// Conflict is what it waited for last; nil: it has not waited.
	Conflict *kvpb.Conflict
	// Retried: a later attempt of the request was evaluated while it waited.
	Retried bool
	// Aborted: its transaction was aborted here while it waited.
	Aborted bool
}

// Until is what it waits for.
func (w *Waiter) Until() Until { return w.until }

// Since is since when it waits.
func (w *Waiter) Since() time.Time { return w.since }

func (w *Waiter) age() age { return age{w.Begun, w.Transaction} }

// hurries says that locks are to be released at once for it.
func (w *Waiter) hurries() bool { return w.Kind != Resolve && !w.LowPriority }

// Writes are the writes of a partition that wait. The lock table has them, lock by lock.
type Writes struct {
	config *Config
	table  *Table
	// Attempts are the writes that have waited and are not finished.
	Attempts Attempts
	// order numbers the writes as they come, and bytes is how large those are that still wait.
	order uint64
	bytes int
}

// Disconnected says that a write of a kind is to acquire locks for a client that is not connected
// any more. If it has waited for one, it would get a lock that nothing releases: a client that died
// with many requests that wait for one key would hold up others with one after the other, each for
// as long as it takes until nothing has been heard of it for too long. A client that comes back
// sends again what it still wants, and then waits at the end of the queue. The owner's lock need
// not be held.
func (ws *Writes) Disconnected(k Kind, client uint64) bool {
	return k == Acquire && ws.config.Disconnected != nil && ws.config.Disconnected(client)
}

func (ws *Writes) disconnected(w *Waiter) bool { return ws.Disconnected(w.Kind, w.Request.Client) }

// MayWait says whether one more write, of a size, may wait.
func (ws *Writes) MayWait(size int) bool {
	waiting := ws.table.Waiters()
	return waiting < ws.config.MaxWaiters &&
		(waiting == 0 || ws.bytes+size <= ws.config.MaxWaiterBytes)
}

// Wait has a write wait for a lock that is in its way at a key, behind all that wait for the lock
// already. Manager.Reevaluate is to follow.
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

// InOrder puts writes that were woken into the order in which they came.
func InOrder(woken []*Waiter) {
	order := func(a, b *Waiter) int { return cmp.Compare(a.order, b.order) }
	if !slices.IsSortedFunc(woken, order) {
		slices.SortFunc(woken, order)
	}
}

// Leave notes that writes which were woken, in the present leadership epoch, wait no longer, and
// puts them into the order in which they came.
func (ws *Writes) Leave(woken []*Waiter) {
	InOrder(woken)
	for _, w := range woken {
		ws.LeaveOne(w)
	}
}

// LeaveOne is Leave of one write.
func (ws *Writes) LeaveOne(w *Waiter) {
	ws.bytes -= w.Size
	ws.config.Metrics.lockWaits.Observe(since(w.since))
}

// WaitAgain has writes that were woken, and that are in order, wait for the lock that their key is
// under by now. It returns those whose key is free, or their own.
func (ws *Writes) WaitAgain(woken []*Waiter) (free []*Waiter) {
	// They come key by key, mostly of one.
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

// waitTogether has writes that have waited for a key, all for the same, wait for a lock, and
// returns those that do not wait for it.
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

// Each calls visit for each write that waits, the transaction for which it does, and the key,
// transaction by transaction.
func (ws *Writes) Each(visit func(x *Transaction, key string, w *Waiter)) {
	ws.table.EachAwaited(func(x *Transaction) {
		x.EachWaiter(func(key string, w *Waiter) { visit(x, key, w) })
	})
}
