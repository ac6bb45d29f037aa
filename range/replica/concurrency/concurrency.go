package concurrency

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Manager is the concurrency control of one partition. Its owner's lock guards it. It must not be
// copied after Init.
type Manager struct {
	// Table follows the engine on every replica (Apply). Locks that are in flight or volatile, and
	// all other fields here, exist on the leader only.
	Table
	Writes      Writes
	Reads       Reads
	Pushes      Pushes
	Resolutions Resolutions
	// Coordinated holds the state of transactions that this partition coordinates.
	Coordinated Coordinated
	Timer       Timer
}

// Init makes a zero Manager ready for a partition.
func (m *Manager) Init(c *Config, owner Owner, partition keys.PartitionID, keyspace uint32) {
	m.Table.config = c
	m.Writes.config, m.Writes.table = c, &m.Table
	m.Reads.metrics = c.Metrics
	m.Pushes = Pushes{config: c, partition: partition, keyspace: keyspace, writes: &m.Writes}
	m.Resolutions = Resolutions{config: c, owner: owner, table: &m.Table, pushes: &m.Pushes}
	m.Timer = Timer{config: c, owner: owner}
}

// GiveUp takes out all requests that wait, in the order in which they came, and forgets all locks
// that are in flight and volatile. It is called at the end of a leadership epoch.
func (m *Manager) GiveUp() (writes []*Waiter, reads []*Read) {
	writes = m.Drain()
	m.Writes.Leave(writes)
	for _, w := range writes {
		m.Writes.Attempts.End(w.Request, w.History)
	}
	m.Writes.bytes = 0
	for l := range m.Reads.waiting {
		m.Reads.leave(l)
		reads = append(reads, l.read)
	}
	m.Reads.waiting, m.Pushes.queues = nil, nil
	m.Timer.disarm()
	m.Resolutions.endEpoch()
	m.Coordinated.endEpoch()
	m.DropInFlight()
	return writes, reads
}

// Blockers returns an empty set of blockers for a read that is in the timestamp cache.
func (m *Manager) Blockers(r *Read) Blockers {
	if !r.marked {
		r.marked, r.mark = true, m.Pushes.sent
	}
	return Blockers{table: &m.Table, most: m.config.MaxBlockers, read: r}
}

// WaitForAll makes a read wait for the transactions in its way; there must be at least one.
func (m *Manager) WaitForAll(b *Blockers, now time.Time, work *Work) {
	waiting := m.Reads.wait(b, now)
	for _, l := range b.Locks {
		q := m.Pushes.queue(l.Transaction, now)
		q.reads = append(q.reads, waiting)
	}
	m.Reevaluate(now, work)
}

// Waiting reports that a request waits, or did until a moment ago, so that Reevaluate has work to
// do.
func (m *Manager) Waiting() bool { return len(m.Pushes.queues) > 0 || m.Waiters() > 0 }

// Answered takes the answer to a push, or the reason why there is none.
func (m *Manager) Answered(p Push, s *kvpb.TransactionStatus, err error, now time.Time,
	work *Work) {
	q := p.queue
	if m.Pushes.queues[q.of] != q {
		return
	}
	p.push.inFlight = false
	forReads := p.push == &q.timestamp
	if err == nil {
		m.Pushes.Learn(q.of, s, p.mark)
		if k := &q.of.Known; forReads && k.State == kvpb.TransactionState_PENDING &&
			k.Above.Less(q.timestamp.above) {
			p.push.due = now.Add(pushInterval) // the push failed; do not repeat it at once
		}
		if forReads {
			// Reads that came after the push look too: for a read at a given timestamp the answer
			// may suffice.
			work.Reads = append(work.Reads, m.Reads.wake(q.of, &q.asked)...)
			work.Reads = append(work.Reads, m.Reads.wake(q.of, &q.reads)...)
		}
	} else {
		m.config.Metrics.pushesFailed.Inc()
		m.Pushes.orphan(q.of, err, now)
		m.config.Logger.Debug("a transaction's coordinator did not answer",
			"partition", m.Pushes.partition, "transaction", q.of.ID, "error", err)
		if forReads {
			q.reads = append(q.asked, q.reads...)
			q.asked, p.push.due = nil, now.Add(pushInterval)
		}
	}
	if q.of.Known.State != kvpb.TransactionState_PENDING && q.idle() {
		work.Resolve = append(work.Resolve, q.of)
	}
	m.Reevaluate(now, work)
}

// Reevaluate updates the requests that wait: requests whose locks are gone go on, requests past
// their deadline expire, pushes that are due are sent, and locks of decided transactions are
// resolved.
func (m *Manager) Reevaluate(now time.Time, work *Work) {
	m.expire(now, work)
	for x, q := range m.Pushes.queues {
		if !m.HasTransaction(x) {
			work.Reads = append(work.Reads, m.Reads.wake(q.of, &q.asked)...)
			work.Reads = append(work.Reads, m.Reads.wake(q.of, &q.reads)...)
			delete(m.Pushes.queues, x)
		} else if q.idle() && !now.Before(q.timestamp.due) {
			delete(m.Pushes.queues, x) // last, so that a read does not push again at once
		}
	}
	m.EachAwaited(func(x *Transaction) { m.Pushes.queue(x, now) })
	next := m.nextDeadline()
	for x, q := range m.Pushes.queues {
		if x.Known.State != kvpb.TransactionState_PENDING {
			work.Resolve = append(work.Resolve, x)
			next = earliest(next, now.Add(pushInterval))
			continue
		}
		next = earliest(next, m.Pushes.ask(q, now, work))
	}
	m.Timer.arm(now, next)
}

// expire takes out requests past their deadline.
func (m *Manager) expire(now time.Time, work *Work) {
	over := func(deadline time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }
	if m.Waiters() > 0 {
		expired := m.TakeWaiters(func(w *Waiter) bool { return over(w.Deadline) })
		for _, w := range expired {
			m.Writes.LeaveOne(w)
			m.Writes.Attempts.End(w.Request, w.History)
		}
		work.ExpiredWrites = append(work.ExpiredWrites, expired...)
	}
	for l := range m.Reads.waiting {
		if over(l.read.Deadline) {
			m.Reads.leave(l)
			work.ExpiredReads = append(work.ExpiredReads, l.read)
		}
	}
	for _, q := range m.Pushes.queues {
		over := func(l *readWait) bool { return l.over }
		q.reads, q.asked = slices.DeleteFunc(q.reads, over), slices.DeleteFunc(q.asked, over)
	}
}

// nextDeadline returns the earliest deadline of a request that waits; zero: there is none.
func (m *Manager) nextDeadline() (next time.Time) {
	m.Writes.Each(func(_ *Transaction, _ string, w *Waiter) { next = earliest(next, w.Deadline) })
	for l := range m.Reads.waiting {
		next = earliest(next, l.read.Deadline)
	}
	return next
}
