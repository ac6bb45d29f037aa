package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A commit in one phase is evaluated in command/one_phase.go. This file has what its entry does
// besides writing versions.

// readAndReleaseLocked is called when the commit timestamp is chosen. It notes the transaction's
// reads at that timestamp, and releases its locks.
func (e *evaluation) readAndReleaseLocked(o *command.OnePhase, ts hlc.Timestamp) {
	r := e.r
	for _, key := range o.Reads.GetKeys() {
		r.Mu.Cache.Record(key, ts)
	}
	for _, span := range o.Reads.GetSpans() {
		r.Mu.Cache.RecordSpan(keys.Span{Start: span.GetStart(), End: span.GetEnd()}, ts)
	}
	for _, l := range o.Held {
		switch {
		case !l.Applied.Volatile:
			r.Mu.Locks.MarkReleased(l, e.proposal.Sequence)
		case o.Wait:
			// With commit wait, locks are not handed over before the entry is applied.
			e.proposal.Lets = append(e.proposal.Lets, l)
		default:
			e.releaseLocked(l)
		}
	}
}

// committedInOnePhase removes what a transaction has left from its time with locks.
func (e *evaluation) committedInOnePhase(o *command.OnePhase, ts hlc.Timestamp) error {
	if o.Unheld {
		e.cancelCommitted(&o.Of)
	}
	e.r.Node.Metrics.Transactions.OnePhase.Inc()
	if len(o.Stored) > 0 {
		e.transactional()
	}
	for _, key := range o.Stored {
		if err := e.batch.Delete(txn.LockKey(e.InternalKey([]byte(key))), nil); err != nil {
			return err
		}
	}
	if o.Record == nil {
		return nil
	}
	committed := *o.Record
	committed.State, committed.Timestamp = kvpb.TransactionState_COMMITTED, ts
	committed.CommitWait, committed.Idle = o.Wait, 0
	committed.Finished = hlc.Max(e.r.Node.Clock.Now(), committed.Started.Next())
	ok, err := e.setRecord(o.Of, &committed)
	e.over = e.over || !ok
	return err
}
