package concurrency

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
)

// waitQueue holds the reads that wait for one transaction (the lock table holds the writes), and
// the pushes to its coordinator. It may be empty for a moment.
type waitQueue struct {
	of *Transaction
	// since is when a request began to wait for the transaction.
	since time.Time
	// reads wait for the answer to the next push of the timestamp, asked for the answer to the one
	// on its way.
	reads, asked []*readWait
	// timestamp is the push for reads, abort the push for writes.
	timestamp, abort push
}

// idle reports that no request waits, and no push is on its way.
func (q *waitQueue) idle() bool {
	return len(q.reads)+len(q.asked)+q.of.Waiting() == 0 && !q.timestamp.inFlight && !q.abort.inFlight
}

// oldestWaiter returns, of the writes that wait for the lock to be gone and for which counts
// returns true, the one with the oldest transaction, and the key that it waits for. awaited reports
// whether any of them hurries.
func (q *waitQueue) oldestWaiter(counts func(*Waiter) bool) (oldest *Waiter, wanted string,
	awaited bool) {
	q.of.EachWaiter(func(key string, w *Waiter) {
		if w.until != UntilGone || !counts(w) {
			return // a write of the lock's own transaction waits for an entry
		}
		awaited = awaited || w.hurries()
		if oldest == nil || w.age().olderThan(oldest.age()) {
			oldest, wanted = w, key
			if c := w.History.Conflict; c != nil {
				wanted = text(c.Key) // of a span lock, the write wants only this key
			}
		}
	})
	return oldest, wanted, awaited
}

// push is the state of one kind of push of a transaction.
type push struct {
	inFlight bool
	// due is when the push is to be sent again.
	due time.Time
	// pusher is the age of the request for which it was last sent.
	pusher age
	// above is the timestamp that was last asked for.
	above hlc.Timestamp
}
