package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// waitQueue is what waits for one transaction, besides the writes, which are in the lock table; and
// what its coordinator is asked. It may be empty for a moment.
type waitQueue struct {
	of *Transaction
	// since is when something began to wait for it.
	since time.Time
	// reads wait for the next push of the timestamp to be answered, asked for the one on its way.
	reads, asked []*readWait
	// timestamp and abort are the pushes of either kind: for reads, and for writes.
	timestamp, abort push
}

// idle: nothing waits, and nothing is asked.
func (q *waitQueue) idle() bool {
	return len(q.reads)+len(q.asked)+q.of.Waiting() == 0 && !q.timestamp.inFlight && !q.abort.inFlight
}

// oldestWaiter is the write with the oldest transaction of those that wait for the lock to be gone,
// and of which counts says so, and the key that it waits for. awaited says whether any hurries.
func (q *waitQueue) oldestWaiter(counts func(*Waiter) bool) (oldest *Waiter, wanted string,
	awaited bool) {
	q.of.EachWaiter(func(key string, w *Waiter) {
		if w.until != UntilGone || !counts(w) {
			return // what is its own transaction's waits for an entry
		}
		awaited = awaited || w.hurries()
		if oldest == nil || w.age().olderThan(oldest.age()) {
			oldest, wanted = w, key
			if c := w.History.Conflict; c != nil {
				wanted = text(c.Key) // of a span lock that it waits for, it wants only this
			}
		}
	})
	return oldest, wanted, awaited
}

// push is the state of one kind of push of a transaction.
type push struct {
	inFlight bool
	// due is when to send it again.
	due time.Time
	// pusher is for whose sake it was sent last.
	pusher age
	// above is the timestamp that was asked for last.
	above hlc.Timestamp
}
