package replica

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// evalContext is what an evaluation of a transactional command asks of its replica.
type evalContext struct{ e *evaluation }

// PendingRecord implements command.Coordination.
func (c evalContext) PendingRecord(of *txn.Info) (*txn.Record, uint64) {
	r := c.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.records.proposed[nameOf(of)]
	return p.record, p.sequence
}

// Believe implements command.Coordination.
func (c evalContext) Believe(ts hlc.Timestamp) bool { return c.e.r.checkAhead(ts, c.e.Clock) }

// Future implements command.Coordination.
func (c evalContext) Future(start hlc.Timestamp) bool { return c.e.isFuture(start) }

// Present implements command.Coordination. It is after the request's timestamps were merged into
// the clock.
func (c evalContext) Present() txn.Present {
	r := c.e.r
	clock := r.node.Clock
	return txn.Present{Physical: clock.Physical(), Since: c.e.livenessFloor, Now: clock.Now(),
		Threshold: *r.threshold.Load(), Limits: r.ownLimits()}
}

// Limits implements command.Coordination.
func (c evalContext) Limits(id keys.KeyspaceID) txn.Limits { return c.e.r.node.limitsOf(id) }

// Physical implements command.Coordination.
func (c evalContext) Physical() (now int64, maxOffset time.Duration) {
	clock := c.e.r.node.Clock
	return clock.Physical(), clock.MaxOffset()
}

// Locks implements command.Coordination.
func (c evalContext) Locks(use func(locks *concurrency.Manager, held bool)) {
	r := c.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	use(&r.mu.locks, r.mu.leadership.is(c.e.epoch))
}

// Now implements command.Coordination.
func (c evalContext) Now() time.Time { return c.e.r.lockNow() }

// Threshold implements command.Coordination.
func (c evalContext) Threshold() hlc.Timestamp { return *c.e.r.threshold.Load() }

// Wait implements command.Coordination.
func (c evalContext) Wait(l *lock, key string, until concurrency.Until) *kvpb.Response {
	return c.e.waitLocked(c.e.current, l, key, until)
}

// SilentSince implements command.Coordination.
func (c evalContext) SilentSince() int64 { return c.e.silentSince(c.e.current) }

// WaitFloor implements command.Coordination.
func (c evalContext) WaitFloor() hlc.Timestamp { return c.e.r.node.Clock.WaitFloor() }

// Highest implements command.Coordination.
func (c evalContext) Highest() hlc.Timestamp {
	return hlc.Max(c.e.r.mu.applied.Highest, c.e.r.mu.written)
}

// Leadership implements command.Coordination.
func (c evalContext) Leadership() *kvpb.Leadership { return c.e.epoch.wire(c.e.r.id) }

// IsLeadership implements command.Coordination.
func (c evalContext) IsLeadership(l *kvpb.Leadership) bool { return c.e.isLeadership(l) }

// Busy implements command.Coordination.
func (c evalContext) Busy() bool { return c.e.r.node.load.Busy(time.Now()) }

// Count implements command.Coordination.
func (c evalContext) Count(event command.Event) {
	m := c.e.r.node.Metrics
	switch event {
	case command.Conflict:
		m.conflicts.Inc()
	case command.RefusedStart:
		m.refusedStarts.Inc()
	case command.Retry:
		m.duplicates.Inc()
	case command.SpansRefused:
		m.spansRefused.Inc()
	}
}

// setRecord puts a record in flight and into the batch. It returns false if the epoch is over.
//
// INVARIANT: what is proposed is what every replica takes: one that cannot apply an entry is failed
// for good, and so are all others.
func (e *evaluation) setRecord(of txn.Info, record *txn.Record) (bool, error) {
	r := e.r
	if err := record.Validate(); err != nil {
		return false, fmt.Errorf("the record of transaction %s is not written: %w", of.ID, err)
	}
	e.transactional()
	r.mu.Lock()
	if !r.mu.leadership.is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return false, nil
	}
	name := nameOf(&of)
	r.mu.records.propose(name, record, e.proposal.sequence)
	e.proposal.records = append(e.proposal.records, name)
	r.mu.Unlock()
	if record.State == kvpb.TransactionState_COMMITTED {
		e.highest = hlc.Max(e.highest, record.Timestamp)
	}
	return true, e.batch.Set(txn.RecordKey(e.InternalKey(of.Anchor), of.ID), record.Append(nil), nil)
}

// decided sets the record of a transaction that was decided, and answers when that is applied.
func (e *evaluation) decided(w *write) error {
	r, record, before := e.r, e.Set, e.Before
	ok, err := e.setRecord(w.transaction(), record)
	if err == nil && ok && !before.Decided() && record.Decided() {
		if record.State == kvpb.TransactionState_COMMITTED {
			r.node.Metrics.twoPhase.Inc()
		} else if reason := int(record.Reason); reason < len(r.node.Metrics.aborts) {
			r.node.Metrics.aborts[reason].Inc()
		}
		if record.State == kvpb.TransactionState_ABORTED {
			e.wakeAborted(w.transaction().ID)
		}
	}
	return e.wrote(w, ok, err, func() *kvpb.Response { return e.Response })
}
