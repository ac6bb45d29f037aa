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
	// all else here, are the leader's.
	Table
	Writes      Writes
	Reads       Reads
	Pushes      Pushes
	Resolutions Resolutions
	// Coordinated is about transactions of which this partition is the coordinator.
	Coordinated Coordinated
	Timer       Timer
}

// Init makes a zero Manager that of a partition.
func (m *Manager) Init(c *Config, owner Owner, partition keys.PartitionID, keyspace uint32) {
	m.Table.config = c
	m.Writes.config, m.Writes.table = c, &m.Table
	m.Reads.metrics = c.Metrics
	m.Pushes = Pushes{config: c, partition: partition, keyspace: keyspace, writes: &m.Writes}
	m.Resolutions = Resolutions{config: c, owner: owner, table: &m.Table, pushes: &m.Pushes}
	m.Timer = Timer{config: c, owner: owner}
}

// GiveUp takes out all that waits, in the order in which it came, and forgets all that is in flight
// and volatile: a leadership epoch ends.
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

// Blockers are those of a read that is in the timestamp cache; none yet.
func (m *Manager) Blockers(r *Read) Blockers {
	if !r.marked {
		r.marked, r.mark = true, m.Pushes.sent
	}
	return Blockers{table: &m.Table, most: m.config.MaxBlockers, read: r}
}

// WaitForAll has a read wait for the transactions in its way, of which there are some.
func (m *Manager) WaitForAll(b *Blockers, now time.Time, work *Work) {
	waiting := m.Reads.wait(b, now)
	for _, l := range b.Locks {
		q := m.Pushes.queue(l.Transaction, now)
		q.reads = append(q.reads, waiting)
	}
	m.Reevaluate(now, work)
}

// Waiting says that anything waits, or did until a moment ago: there is something to reevaluate.
func (m *Manager) Waiting() bool { return len(m.Pushes.queues) > 0 || m.Waiters() > 0 }

// Answered takes the answer to a push, or why there is none.
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
			p.push.due = now.Add(pushInterval) // it was not done, for whatever reason: not again at once
		}
		if forReads {
			// Those that came since look too: for a given timestamp the answer may be enough.
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

// Reevaluate brings what waits up to date: what waits for nothing any more goes on, what is over
// its deadline expires, what has to be asked is asked, and what was decided is resolved.
func (m *Manager) Reevaluate(now time.Time, work *Work) {
	m.expire(now, work)
	for x, q := range m.Pushes.queues {
		if !m.HasTransaction(x) {
			work.Reads = append(work.Reads, m.Reads.wake(q.of, &q.asked)...)
			work.Reads = append(work.Reads, m.Reads.wake(q.of, &q.reads)...)
			delete(m.Pushes.queues, x)
		} else if q.idle() && !now.Before(q.timestamp.due) {
			delete(m.Pushes.queues, x) // not before: a read that looks again does not ask at once
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

// expire takes out what is over its deadline.
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

// nextDeadline is the earliest deadline of what waits; zero: there is none.
func (m *Manager) nextDeadline() (next time.Time) {
	m.Writes.Each(func(_ *Transaction, _ string, w *Waiter) { next = earliest(next, w.Deadline) })
	for l := range m.Reads.waiting {
		next = earliest(next, l.read.Deadline)
	}
	return next
}
