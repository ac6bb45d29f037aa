package replica

import (
	"bytes"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// Apply applies entries in order, in one batch with the applied record. An error means that the
// replica is failed: what it could not apply it must not skip.
func (r *Replica) Apply(entries []group.Entry) error {
	if len(entries) == 0 {
		return nil
	}
	r.applying.lock()
	err := r.applyAll(entries)
	r.applying.unlock()
	if err != nil {
		return err
	}
	r.eval.Kick(false)
	return nil
}

// applyAll is Apply, with applying locked. Of a partition that another one has consumed nothing is
// applied any more: its log is there for that one, and nothing is behind the freeze.
func (r *Replica) applyAll(entries []group.Entry) error {
	if r.consumed.Load() {
		return nil
	}
	start := time.Now()
	for left := entries; len(left) > 0; {
		n, err := r.apply(left)
		if err != nil {
			err = fmt.Errorf("partition %s: %w", r.id, err)
			r.fail(err)
			return err
		}
		left = left[n:]
	}
	r.node.Metrics.Applied.Entries.Add(float64(len(entries)))
	r.node.Metrics.Applied.Seconds.Observe(since(start))
	return nil
}

// apply applies entries, all of them or up to one by which the partition splits or merges, or to
// one that may make a table, which comes by itself. It returns how many.
func (r *Replica) apply(entries []group.Entry) (n int, err error) {
	r.m.Mu.Lock()
	applied, failed := r.m.Mu.Applied, r.m.Mu.Failed
	if entries[0].Index == reshape.FirstIndex(r.Descriptor()) {
		r.m.Mu.Leadership.FirstEntry(entries[0].Term)
	}
	var floor hlc.Timestamp
	if invariants.Enabled {
		floor = hlc.Max(applied.Closed, r.m.Mu.Closing.Closed(applied.Index))
	}
	r.m.Mu.Unlock()
	if failed != nil {
		return 0, failed
	}
	batch := r.state.NewBatch()
	defer batch.Close()
	var own []eval.OwnEntry
	changes := changes{floor: floor}
	defer func() {
		if changes.table != nil {
			changes.table.Abort() // nothing, if it was committed
		}
	}()
	for n < len(entries) && changes.split == nil && changes.consumption == nil &&
		!changes.alone {
		e := &entries[n]
		if changes.alone = isLoad(e); changes.alone && n > 0 {
			break
		}
		n++
		if e.Index != applied.Index+1 {
			return 0, fmt.Errorf("entry %d follows applied index %d; entries are missing or come twice",
				e.Index, applied.Index)
		}
		applied.Index, applied.Term = e.Index, e.Term
		if len(e.Data) == 0 {
			continue
		}
		o, err := r.applyOne(batch, e, &applied, &changes)
		if err != nil {
			return 0, fmt.Errorf("entry %d of term %d: %w", e.Index, e.Term, err)
		}
		if o.Sequence != 0 {
			own = append(own, o)
		}
	}
	if changes.split != nil {
		if err := changes.split.Stage(batch, &applied, r.bearing()); err != nil {
			return 0, fmt.Errorf("entry %d of term %d: %w", applied.Index, applied.Term, err)
		}
	}
	release := func() {}
	if changes.consumption != nil {
		if release, err = r.stageConsumption(batch, &applied, changes.consumption); err != nil {
			return 0, fmt.Errorf("entry %d of term %d: %w", applied.Index, applied.Term, err)
		}
	}
	// INVARIANT: the threshold is published before anything that it gives free is gone.
	r.m.RaiseThreshold(applied.Threshold)
	if changes.split != nil {
		// INVARIANT: before a part of the partition may go: see moved.
		r.m.Announce(changes.descriptor.Generation)
	}
	r.tellVacant(batch, &changes)
	err = r.commitApplied(batch, &applied, changes.table)
	r.m.Vacant.End()
	if err == nil && changes.consumption != nil {
		// INVARIANT: before this partition's descriptor shows it: see Thaw.
		changes.consumption.from.Replica().consumed.Store(true)
	}
	release()
	if err != nil {
		return 0, err
	}
	if hook := r.node.Hooks.Committed; hook != nil {
		hook()
	}
	// INVARIANT: before anything is answered, so that a read that begins after the answer has a
	// timestamp above the write's.
	r.observe(applied.Highest)
	if changes.split != nil || changes.consumption != nil {
		r.describeAs(&changes, applied.Index)
	}
	if changes.split != nil {
		r.bear(changes.split)
	}
	if changes.consumption != nil {
		r.takeOver(changes.consumption)
	}
	r.complete(applied, own, &changes)
	if invariants.Enabled && changes.split == nil && changes.consumption == nil {
		checkInvariantState(r)
	}
	if m := changes.consumption; m != nil {
		m.from.Replica().endConsumed(m.Left)
		m.from.Consumed(m.Left)
	}
	if d := changes.descriptor; d.GetFrozen() != nil && r.node.Froze != nil {
		r.node.Froze(r.id, d.Frozen)
	}
	return n, nil
}

// applyOne adds the effects of an entry to the batch, the changes and the applied record, if it is
// accepted. It returns what has come of it if it is this replica's own, with the sequence 0 if it
// is not.
func (r *Replica) applyOne(batch *engine.StateBatch, e *group.Entry, applied *storage.Record,
	c *changes) (o eval.OwnEntry, err error) {
	p, err := proposal.Decode(e.Data)
	if err != nil {
		return o, err
	}
	accepted := applied.Accepts(e.Term, &p)
	c.versions = nil
	if invariants.Enabled {
		c.floor = hlc.Max(c.floor, applied.Closed)
	}
	if accepted {
		if err := r.stage(batch, &p, e.Change, c); err != nil {
			return o, err
		}
		if p.HandsOver {
			c.handedOver = leadership.HandedOver{Term: e.Term, At: p.Highest.Wall}
		}
		if err := applied.Advance(e.Term, &p); err != nil {
			return o, err
		}
	} else {
		// INVARIANT: what was served stays closed, whatever becomes of the entry that says so:
		// its leader has handed over behind it. An entry that was evaluated in vain can precede
		// it.
		applied.Closed = hlc.Max(applied.Closed, p.Closed)
		r.node.Metrics.Applied.Rejected.Inc()
	}
	if p.Proposer == r.self {
		o = eval.OwnEntry{Term: e.Term, Sequence: p.Sequence, Accepted: accepted, Versions: c.versions}
	}
	return o, nil
}

// changes are what entries change of what a replica keeps in memory.
type changes struct {
	// descriptor is the new one, nil if there is none.
	descriptor *clusterpb.Partition
	// split is how the partition splits; nil if it does not.
	split *reshape.Split
	// consumption is how it merges with its right neighbour; nil if it does not.
	consumption *merge
	locks       []concurrency.Change
	// alone: the entry at hand is the only one, so that it may have a table, which is to be committed
	// instead of the batch.
	alone bool
	table *engine.TableWriter
	// versions are those of the entry at hand, if it is of transactions: they are not all among the
	// pending writes.
	versions []eval.OwnVersion
	// records says that a transaction record was set.
	records bool
	// floor is closed before the entry at hand; for checks of invariants, and zero without them.
	floor hlc.Timestamp
	// handedOver is of the latest entry by which a leader has closed what it served, if that took
	// effect.
	handedOver leadership.HandedOver
}

// stage adds the effects of an entry to the batch and to the changes. It checks everything: what is
// applied here is the same everywhere, so it had better be right.
func (r *Replica) stage(batch *engine.StateBatch, p *proposal.Entry, change bool, c *changes,
) error {
	d := r.Descriptor()
	if c.descriptor != nil {
		d = c.descriptor
	}
	span := keys.PartitionSpan(d)
	switch p.Kind {
	case proposal.KindSplit:
		s, err := reshape.DecodeSplit(d, p, change)
		if err == nil {
			c.descriptor, c.split = s.Left, s
		}
		return err
	case proposal.KindFreeze:
		next, err := reshape.StageFreeze(batch, d, p, change)
		if err == nil {
			c.descriptor = next
		}
		return err
	case proposal.KindMerge:
		m, err := reshape.DecodeMerge(d, p, change)
		if err == nil {
			c.descriptor, c.consumption = m.Left, &merge{Merge: m}
		}
		return err
	}
	if d.Frozen != nil && p.Kind != proposal.KindDescriptor && (len(p.Batch) > 0 ||
		p.Kind == proposal.KindThreshold) {
		return fmt.Errorf("%w: a command of kind %d in a frozen partition",
			proposal.ErrMalformed, p.Kind)
	}
	if change && p.Kind != proposal.KindDescriptor {
		return fmt.Errorf("%w: a command of kind %d that changes replicas",
			proposal.ErrMalformed, p.Kind)
	}
	if p.Kind == proposal.KindLoad {
		return r.stageLoad(batch, d, p, c)
	}
	return proposal.WalkBatch(p.Batch, func(deletion bool, key, value []byte) error {
		if deletion && p.Kind != proposal.KindRemove && p.Kind != proposal.KindTransaction ||
			!deletion && p.Kind == proposal.KindRemove {
			return fmt.Errorf("%w: an operation that does not belong to a command of kind %d",
				proposal.ErrMalformed, p.Kind)
		}
		switch {
		case p.Kind == proposal.KindDescriptor:
			if !bytes.Equal(key, keys.LocalKey(r.id, keys.SuffixDescriptor)) {
				return fmt.Errorf("%w: a descriptor at %s", proposal.ErrMalformed, keys.PrettyState(key))
			}
			next, err := storage.DecodeDescriptor(r.id, value)
			if err != nil {
				return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
			}
			before := r.Descriptor()
			if c.descriptor != nil {
				before = c.descriptor
			}
			if err = reshape.CheckThaw(before, next); err == nil {
				err = reshape.CheckChange(before, next, change)
			}
			if err == nil && !keys.PartitionSpan(next).Equal(keys.PartitionSpan(before)) {
				err = fmt.Errorf("the span becomes %s, and is %s", keys.PartitionSpan(next), span)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
			}
			c.descriptor = next
		case p.Kind == proposal.KindTransaction:
			if err := c.transaction(d, p, deletion, key, value); err != nil {
				return err
			}
			if invariants.Enabled && !deletion {
				checkInvariantDecision(r.state, key, value)
			}
		default:
			if err := checkReplicatedKey(span, key, p); err != nil {
				return err
			}
			if invariants.Enabled && p.Kind != proposal.KindRemove {
				checkInvariantClosed(key, c.floor)
			}
		}
		if deletion {
			return batch.Delete(key, nil)
		}
		return batch.Set(key, value, nil)
	})
}

// checkReplicatedKey checks a key of a write or removal: a version or an anchored record, of this
// partition.
func checkReplicatedKey(span keys.Span, key []byte, p *proposal.Entry) error {
	if internalKey, ts, err := keys.DecodeVersioned(key); err == nil {
		return checkVersion(span, key, internalKey, ts, p)
	}
	internalKey, suffix, err := keys.DecodeAnchorKey(key)
	if err != nil {
		return fmt.Errorf("%w: %s is neither a version nor an anchored record", proposal.ErrMalformed,
			keys.PrettyState(key))
	}
	if !span.Contains(internalKey) {
		return fmt.Errorf("%w: %s is outside the partition's span %s", proposal.ErrMalformed,
			keys.PrettyState(key), span)
	}
	// Locks come and go by their transactions' entries only; of records, removal is all that
	// another may do.
	if of, _ := txn.Classify(suffix); of == txn.AnchoredLock ||
		(of == txn.AnchoredRecord && p.Kind != proposal.KindRemove) {
		return fmt.Errorf("%w: %s in a command of kind %d", proposal.ErrMalformed,
			keys.PrettyState(key), p.Kind)
	}
	return nil
}

// checkVersion checks the key of a version.
func checkVersion(span keys.Span, key, internalKey []byte, ts hlc.Timestamp,
	p *proposal.Entry) error {
	switch {
	case ts.IsZero():
		return fmt.Errorf("%w: data key %s without a timestamp", proposal.ErrMalformed,
			keys.PrettyState(key))
	case !span.Contains(internalKey):
		return fmt.Errorf("%w: %s is outside the partition's span %s", proposal.ErrMalformed,
			keys.PrettyState(key), span)
	case p.Kind != proposal.KindRemove && p.Highest.Less(ts):
		return fmt.Errorf("%w: %s is above the entry's highest timestamp %s", proposal.ErrMalformed,
			keys.PrettyState(key), p.Highest)
	}
	return nil
}

// describeAs publishes the descriptor that was applied last, if it changed.
func (r *Replica) describeAs(c *changes, index uint64) {
	if c.descriptor != nil {
		r.m.Publish(c.descriptor, index)
	}
}

// complete makes what was applied known: to the pending writes, to what waits for it, and to the
// clients that asked for it.
func (r *Replica) complete(applied storage.Record, own []eval.OwnEntry, c *changes) {
	var end eval.Ending
	var done []*machine.Entry
	r.m.Mu.Lock()
	if c.handedOver.Term != 0 {
		r.m.Mu.Leadership.SetHandedOver(c.handedOver)
	}
	if invariants.Enabled {
		checkInvariantAdvance(r.id, &r.m.Mu.Applied, &applied)
	}
	r.m.Mu.Applied = applied
	// Under the lock: what a freeze leaves behind is read under it, descriptor, index and all.
	r.describeAs(c, applied.Index)
	if len(c.locks) > 0 {
		r.eval.RequeueLocked(r.m.Mu.Locks.Apply(c.locks))
	}
	if c.records {
		r.gc.RecordsSet()
	}
	if c.split != nil {
		r.narrowLocked(c.split)
	}
	if c.consumption != nil {
		r.widenLocked(c.consumption)
	}
	for i := range own {
		if p := r.eval.OwnAppliedLocked(&end, &own[i]); p != nil {
			done = append(done, p)
		}
	}
	if c.split != nil || c.consumption != nil {
		// What was routed before, and waits, is routed anew.
		end.Stale = c.descriptor
		r.eval.GiveUpLocked(&end, eval.NotRun)
		r.eval.RefuseQueueLocked(&end)
	}
	r.m.CheckServingLocked()
	if over := r.m.HoldLocked(); over != nil {
		done = append(done, over)
	}
	wake := r.eval.ReevaluateLocked()
	closedReads := r.reads.ClosedAdvancedLocked(len(c.locks) > 0)
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
	r.eval.Do(&wake)
	r.reads.ResumeClosed(closedReads)

	for _, p := range done {
		r.eval.Answer(p, applied.Highest)
	}
}

// fail marks the replica failed: it answers no more requests but with an error.
func (r *Replica) fail(err error) {
	var end eval.Ending
	r.m.Mu.Lock()
	if r.m.Mu.Failed == nil {
		r.m.Mu.Failed = err
		r.node.Metrics.Applied.Failures.Inc()
		r.node.Logger.Error("replica failed", "partition", r.id, "replica", r.self, "error", err)
	}
	r.m.Mu.Leadership.Close()
	r.eval.GiveUpLocked(&end, eval.OutcomeUnknown)
	r.eval.RefuseQueueLocked(&end)
	r.m.Mu.Cache.Reset(hlc.Timestamp{})
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
}

// Deleted keys keep their tombstones until the GC window is over. So that each scan of a queue need
// not walk over all that was taken from the queue within the window, a replica remembers spans in
// which nothing has a value (range/mvcc/vacant). The memory is the replica's own: leaders and
// followers fill it by the scans that they serve, and correct it by what they apply.
//
// INVARIANT: a read takes the vacant spans when all that is ever written at or below its timestamp
// is applied: at the earliest when it opens its iterator (package read).

// tellVacant tells the memory what is about to be committed, if anything is remembered or learned.
// The caller calls vacant.End afterwards.
func (r *Replica) tellVacant(batch *engine.StateBatch, c *changes) {
	if !r.m.Vacant.Begin() {
		return
	}
	// A partition that splits or merges has another span, and what is in a table is in no batch.
	writes, known := mvcc.Written(batch)
	if !known || c.split != nil || c.consumption != nil || c.table != nil {
		r.m.Vacant.Reset()
		return
	}
	r.m.Vacant.Wrote(writes)
}
