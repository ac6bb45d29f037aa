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

// Apply applies entries in order. One batch holds their effects and the applied record. An error
// means that the replica has failed: it must not skip an entry that it could not apply.
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

// applyAll applies entries; the caller holds applying. After another partition has consumed this
// one no entry is applied: the log is kept only for that partition, and nothing that counts comes
// after the entry of the freeze.
func (r *Replica) applyAll(entries []group.Entry) error {
	if r.subsumed.Load() {
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

// apply applies a prefix of the entries and returns its length. The prefix ends with an entry that
// splits or merges the partition; an entry that may become a table is applied alone.
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
			changes.table.Abort() // no effect after a commit
		}
	}()
	for n < len(entries) && changes.split == nil && changes.merge == nil &&
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
		if err := changes.split.Stage(batch, &applied, r.childState); err != nil {
			return 0, fmt.Errorf("entry %d of term %d: %w", applied.Index, applied.Term, err)
		}
	}
	release := func() {}
	if changes.merge != nil {
		if release, err = r.stageMerge(batch, &applied, changes.merge); err != nil {
			return 0, fmt.Errorf("entry %d of term %d: %w", applied.Index, applied.Term, err)
		}
	}
	// INVARIANT: the threshold is published before any version below it is removed.
	r.m.RaiseThreshold(applied.Threshold)
	if changes.split != nil {
		// INVARIANT: the generation is published before a part of the partition may leave: see
		// moved.
		r.m.Announce(changes.descriptor.Generation)
	}
	r.tellVacant(batch, &changes)
	err = r.commitApplied(batch, &applied, changes.table)
	r.m.Vacant.End()
	if err == nil && changes.merge != nil {
		// INVARIANT: the right side is marked as consumed before this partition's descriptor shows
		// its span: see Thaw.
		changes.merge.from.Replica().subsumed.Store(true)
	}
	release()
	if err != nil {
		return 0, err
	}
	if hook := r.node.Hooks.Committed; hook != nil {
		hook()
	}
	// INVARIANT: the clock advances before any answer is sent, so that a read that begins after the
	// answer has a timestamp above the write's.
	r.observe(applied.Highest)
	if changes.split != nil || changes.merge != nil {
		r.describeAs(&changes, applied.Index)
	}
	if changes.split != nil {
		r.childApplied(changes.split)
	}
	if changes.merge != nil {
		r.takeOver(changes.merge)
	}
	r.complete(applied, own, &changes)
	if invariants.Enabled && changes.split == nil && changes.merge == nil {
		checkInvariantState(r)
	}
	if m := changes.merge; m != nil {
		m.from.Replica().endSubsumed(m.Left)
		m.from.Subsumed(m.Left)
	}
	if d := changes.descriptor; d.GetFrozen() != nil {
		r.node.Siblings.Froze(r.id, d.Frozen)
	}
	return n, nil
}

// applyOne adds the effects of an accepted entry to the batch, to the changes and to the applied
// record. It returns the outcome of an entry that this replica proposed; for the entry of another
// replica, an outcome with sequence 0.
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
		// INVARIANT: a timestamp that a leader has closed stays closed, even if the entry that says
		// so is rejected because an earlier one had no effect: its leader may have handed over
		// behind it.
		applied.Closed = hlc.Max(applied.Closed, p.Closed)
		r.node.Metrics.Applied.Rejected.Inc()
	}
	if p.Proposer == r.self {
		o = eval.OwnEntry{Term: e.Term, Sequence: p.Sequence, Accepted: accepted, Times: e.Times,
			Versions: c.versions}
	}
	return o, nil
}

// changes collects what entries change of a replica's memory.
type changes struct {
	// descriptor is the new descriptor; nil if the entries change nothing in it.
	descriptor *clusterpb.Partition
	// split is the split of the partition; nil if there is no split among the entries.
	split *reshape.Split
	// consumption is the merge with the right neighbour; nil if there is no merge among the
	// entries.
	merge *merge
	locks []concurrency.Change
	// alone is set if the batch has one entry only. Such an entry may be written to table, which is
	// then committed instead of the batch.
	alone bool
	table *engine.TableWriter
	// versions are the versions that the entry at hand writes, if it is a transaction's: not all of
	// them are among the pending writes.
	versions []eval.OwnVersion
	// records is set if an entry has set a transaction record.
	records bool
	// floor is the closed timestamp before the entry at hand. Only checks of invariants use it; it
	// is zero without them.
	floor hlc.Timestamp
	// handedOver is the latest hand-over of a leadership that took effect: the entry by which a
	// leader closed all that it had served.
	handedOver leadership.HandedOver
}

// stage adds the effects of an entry to the batch and to the changes. It checks everything: a wrong
// entry would be applied on every replica.
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
			c.descriptor, c.merge = m.Left, &merge{Merge: m}
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

// checkReplicatedKey checks that a key which an entry sets or removes is a version or an anchored
// record within this partition.
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
	// Only entries of transactions write or remove locks. Other entries may remove records, and do
	// nothing else to them.
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

// describeAs publishes the descriptor of the entry at an index, if the entries have changed it.
func (r *Replica) describeAs(c *changes, index uint64) {
	if c.descriptor != nil {
		r.m.Publish(c.descriptor, index, r.group.Appended())
	}
}

// complete publishes what was applied: it updates the pending writes, resumes waiting requests, and
// answers clients.
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
	// With the lock held: FrozenState reads descriptor and index together under it.
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
	if c.merge != nil {
		r.widenLocked(c.merge)
	}
	for i := range own {
		if p := r.eval.OwnAppliedLocked(&end, &own[i]); p != nil {
			done = append(done, p)
		}
	}
	if c.split != nil || c.merge != nil {
		// Requests that wait were routed by the old descriptor, and are routed again.
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

// fail marks the replica as failed: from now on it answers every request with an error.
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

// Deleted keys keep their tombstones until the GC window is over. A queue, for instance, would have
// each scan walk over all entries that were taken out within the window. So a replica remembers
// spans in which no key has a value (range/mvcc/vacant). The memory is the replica's own: leaders
// and followers fill it by the scans that they serve, and correct it by what they apply.
//
// INVARIANT: a read asks for the vacant spans only when every write at or below its timestamp is
// applied: at the earliest when it opens its iterator (package read).

// tellVacant tells the memory of vacant spans what is about to be committed, if the memory has
// remembered anything or a scan is filling it. The caller calls vacant.End afterwards.
func (r *Replica) tellVacant(batch *engine.StateBatch, c *changes) {
	if !r.m.Vacant.Begin() {
		return
	}
	// A split or merge changes the partition's span, and records in a table are in no batch.
	writes, known := mvcc.Written(batch)
	if !known || c.split != nil || c.merge != nil || c.table != nil {
		r.m.Vacant.Reset()
		return
	}
	r.m.Vacant.Wrote(writes)
}
