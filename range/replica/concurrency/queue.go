package concurrency

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
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

// queue is the wait queue of a transaction; there is one from here on.
func (m *Manager) queue(x *Transaction, now time.Time) *waitQueue {
	q := m.queues[x]
	if q == nil {
		if m.queues == nil {
			m.queues = make(map[*Transaction]*waitQueue)
		}
		q = &waitQueue{of: x, since: now}
		m.queues[x] = q
	}
	return q
}

// idle: nothing waits, and nothing is asked.
func (q *waitQueue) idle() bool {
	return len(q.reads)+len(q.asked)+q.of.Waiting() == 0 && !q.timestamp.inFlight && !q.abort.inFlight
}

// wake lets reads go on.
func (m *Manager) wake(q *waitQueue, reads *[]*readWait, work *Work) {
	committed := q.of.Known.State == kvpb.TransactionState_COMMITTED
	for _, l := range *reads {
		if l.over {
			continue
		}
		if committed {
			l.read.Committed = hlc.Max(l.read.Committed, q.of.Known.Commit)
		}
		if l.left--; l.left == 0 {
			m.leaveRead(l)
			work.Reads = append(work.Reads, l.read)
		}
	}
	*reads = nil
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

// Reevaluate brings what waits up to date: what waits for nothing any more goes on, what is over
// its deadline expires, what has to be asked is asked, and what was decided is resolved.
func (m *Manager) Reevaluate(now time.Time, work *Work) {
	m.expire(now, work)
	for x, q := range m.queues {
		if !m.table.HasTransaction(x) {
			m.wake(q, &q.asked, work)
			m.wake(q, &q.reads, work)
			delete(m.queues, x)
		} else if q.idle() && !now.Before(q.timestamp.due) {
			delete(m.queues, x) // not before: a read that looks again does not ask at once
		}
	}
	m.table.EachAwaited(func(x *Transaction) { m.queue(x, now) })
	next := m.nextDeadline()
	for x, q := range m.queues {
		if x.Known.State != kvpb.TransactionState_PENDING {
			work.Resolve = append(work.Resolve, x)
			next = earliest(next, now.Add(pushInterval))
			continue
		}
		next = earliest(next, m.ask(q, now, work))
	}
	m.arm(now, next)
}

// expire takes out what is over its deadline.
func (m *Manager) expire(now time.Time, work *Work) {
	over := func(deadline time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }
	if m.table.Waiters() > 0 {
		expired := m.table.TakeWaiters(func(w *Waiter) bool { return over(w.Deadline) })
		for _, w := range expired {
			m.LeaveOne(w)
			m.EndAttempt(w.Request, w.History)
		}
		work.ExpiredWrites = append(work.ExpiredWrites, expired...)
	}
	for l := range m.reads {
		if over(l.read.Deadline) {
			m.leaveRead(l)
			work.ExpiredReads = append(work.ExpiredReads, l.read)
		}
	}
	for _, q := range m.queues {
		over := func(l *readWait) bool { return l.over }
		q.reads, q.asked = slices.DeleteFunc(q.reads, over), slices.DeleteFunc(q.asked, over)
	}
}

// nextDeadline is the earliest deadline of what waits; zero: there is none.
func (m *Manager) nextDeadline() (next time.Time) {
	m.EachWaiter(func(_ *Transaction, _ string, w *Waiter) { next = earliest(next, w.Deadline) })
	for l := range m.reads {
		next = earliest(next, l.read.Deadline)
	}
	return next
}
