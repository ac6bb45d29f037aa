package eval

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// evalContext gives the evaluation of a transactional command access to the replica.
type evalContext struct{ e *evaluation }

// PendingRecord implements command.Coordination.
func (c evalContext) PendingRecord(of *txn.Info) (*txn.Record, uint64) {
	r := c.e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	p := r.records.proposed[machine.NameOf(of)]
	return p.record, p.sequence
}

// Believe implements command.Coordination.
func (c evalContext) Believe(ts hlc.Timestamp) bool { return c.e.r.Node.CheckAhead(ts, c.e.Clock) }

// Future implements command.Coordination.
func (c evalContext) Future(start hlc.Timestamp) bool { return c.e.isFuture(start) }

// Present implements command.Coordination. The request's timestamps were merged into the clock
// before.
func (c evalContext) Present() txn.Present {
	r := c.e.r
	clock := r.Node.Clock
	return txn.Present{Physical: clock.Physical(), Since: c.e.livenessFloor, Now: clock.Now(),
		Threshold: r.Threshold(), Limits: r.ownLimits()}
}

// Limits implements command.Coordination.
func (c evalContext) Limits(id keys.KeyspaceID) txn.Limits { return c.e.r.Node.LimitsOf(id) }

// Physical implements command.Coordination.
func (c evalContext) Physical() (now int64, maxOffset time.Duration) {
	clock := c.e.r.Node.Clock
	return clock.Physical(), clock.MaxOffset()
}

// Locks implements command.Coordination.
func (c evalContext) Locks(use func(locks *concurrency.Manager, held bool)) {
	r := c.e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	use(&r.Mu.Locks, r.Mu.Leadership.Is(c.e.epoch))
}

// Now implements command.Coordination.
func (c evalContext) Now() time.Time { return c.e.r.Node.LockNow() }

// Threshold implements command.Coordination.
func (c evalContext) Threshold() hlc.Timestamp { return c.e.r.Threshold() }

// Wait implements command.Coordination.
func (c evalContext) Wait(l *lock, key string, until concurrency.Until) *kvpb.Response {
	return c.e.waitLocked(c.e.current, l, key, until)
}

// SilentSince implements command.Coordination.
func (c evalContext) SilentSince() int64 { return c.e.silentSince(c.e.current) }

// WaitFloor implements command.Coordination.
func (c evalContext) WaitFloor() hlc.Timestamp { return c.e.r.Node.Clock.WaitFloor() }

// Highest implements command.Coordination.
func (c evalContext) Highest() hlc.Timestamp {
	return hlc.Max(c.e.r.Mu.Applied.Highest, c.e.r.written)
}

// Leadership implements command.Coordination.
func (c evalContext) Leadership() *kvpb.Leadership { return c.e.epoch.Wire(c.e.r.ID) }

// IsLeadership implements command.Coordination.
func (c evalContext) IsLeadership(l *kvpb.Leadership) bool { return c.e.isLeadership(l) }

// Busy implements command.Coordination.
func (c evalContext) Busy() bool { return c.e.r.Node.Load.Busy(time.Now()) }

// Count implements command.Coordination.
func (c evalContext) Count(event command.Event) {
	m := c.e.r.Node.Metrics
	switch event {
	case command.Conflict:
		m.Transactions.Conflicts.Inc()
	case command.RefusedStart:
		m.Transactions.RefusedStarts.Inc()
	case command.Retry:
		m.Writes.Duplicates.Inc()
	case command.SpansRefused:
		m.Transactions.SpansRefused.Inc()
	}
}

// setRecord puts a record in flight and into the batch. It returns false if the epoch is over.
//
// INVARIANT: every replica can apply what is proposed: a replica that cannot apply an entry has
// failed for good, and all others would fail with it. So the record is validated first.
func (e *evaluation) setRecord(of txn.Info, record *txn.Record) (bool, error) {
	r := e.r
	if err := record.Validate(); err != nil {
		return false, fmt.Errorf("the record of transaction %s is not written: %w", of.ID, err)
	}
	e.transactional()
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(e.epoch) {
		r.Mu.Unlock()
		e.over = true
		return false, nil
	}
	name := machine.NameOf(&of)
	r.records.propose(name, record, e.proposal.Sequence)
	e.proposal.Records = append(e.proposal.Records, name)
	r.Mu.Unlock()
	if record.State == kvpb.TransactionState_COMMITTED {
		e.highest = hlc.Max(e.highest, record.Timestamp)
	}
	return true, e.batch.Set(txn.RecordKey(e.InternalKey(of.Anchor), of.ID), record.Append(nil), nil)
}

// decided sets the record of a decided transaction, and answers when the record is applied.
func (e *evaluation) decided(w *write) error {
	r, record, before := e.r, e.Set, e.Before
	ok, err := e.setRecord(w.transaction(), record)
	if err == nil && ok && !before.Decided() && record.Decided() {
		if record.State == kvpb.TransactionState_COMMITTED {
			r.Node.Metrics.Transactions.TwoPhase.Inc()
		} else if reason := int(record.Reason); reason < len(r.Node.Metrics.Transactions.Aborts) {
			r.Node.Metrics.Transactions.Aborts[reason].Inc()
		}
		if record.State == kvpb.TransactionState_ABORTED {
			e.wakeAborted(w.transaction().ID)
		}
	}
	return e.wrote(w, ok, err, func() *kvpb.Response { return e.Response })
}

// The start of a transaction decides which transaction goes first in conflicts, and how long the
// transaction may last; and it is the client that names the start. So it is checked wherever it
// could have an effect: where locks are taken, where a commit in one phase may wait for locks, and
// where a push would abort another transaction. A start ahead of every clock is refused like any
// such timestamp, after which the client tries again; a start longer ago than the keyspace allows
// is refused as aborted, so that the client begins anew.
//
// The limits of an open transaction are enforced at its record: package txn.

// isFuture reports that a start is further ahead than any clock of the cluster can be. Unlike
// CheckAhead it leaves the clock alone: nothing has to be above a start.
func (e *evaluation) isFuture(start hlc.Timestamp) bool {
	clock := e.r.Node.Clock
	return !start.LessEq(e.Clock) && start.Wall-clock.Physical() > 2*int64(clock.MaxAhead())
}

func (r *Evaluator) ownLimits() txn.Limits {
	return r.Node.LimitsOf(keys.KeyspaceID(r.Descriptor().GetKeyspace()))
}

// silentSince returns the time since which a transaction's client counts as silent if no heartbeat
// comes. Clients send heartbeats while their requests wait for other locks, so the time of that
// wait counts; but only up to half of the silence that aborts a transaction, since heartbeats may
// be under way.
func (e *evaluation) silentSince(w *write) int64 {
	now := e.r.Node.Clock.Physical()
	if w.conflict() == nil {
		return now
	}
	waited := max(time.Duration(0), e.now.Sub(w.pending.Arrived))
	return now - int64(min(waited, txn.Abandoned/2))
}
