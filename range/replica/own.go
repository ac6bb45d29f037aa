package replica

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/gc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Commands that no client has sent: how the rooms that change a partition by entries of their own
// have these evaluated.

// errNothingToDo ends the evaluation of a command that has nothing to propose.
var errNothingToDo = errors.New("nothing to do")

// errAgain has a command evaluated again for the next entry: this one is full.
var errAgain = errors.New("the entry is full")

// GC is the garbage collector of the partition.
func (r *Replica) GC() *gc.Collector { return r.gc }

// collected is the replica as its garbage collector needs it.
type collected struct{ *Replica }

// Threshold implements gc.Replica.
func (r collected) Threshold() hlc.Timestamp { return *r.threshold.Load() }

// BeginCollection implements gc.Replica. It returns the memory of the timestamp cache.
func (r collected) BeginCollection() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.cache.Release()
}

// Propose implements gc.Replica.
func (r collected) Propose(ctx context.Context, kind proposal.Kind,
	evaluate func(gc.Evaluation) (bool, error)) (proposed bool, err error) {
	err = r.command(ctx, kind, func(e *evaluation, p *proposal.Entry) (bool, error) {
		propose, err := evaluate(ownEvaluation{e, p})
		if err == nil && !propose {
			err = errNothingToDo
		}
		return propose, err
	})
	if errors.Is(err, errNothingToDo) {
		return false, nil
	}
	return err == nil, err
}

// Enter implements gc.Replica.
func (r collected) Enter() bool { return r.enter() }

// Exit implements gc.Replica.
func (r collected) Exit() { r.exit() }

// Passed implements gc.Replica.
func (r collected) Passed(ts hlc.Timestamp) bool { return r.passed(ts) }

// ownEvaluation is the evaluation of a command that no client has sent.
type ownEvaluation struct {
	e     *evaluation
	entry *proposal.Entry
}

// Descriptor implements gc.Evaluation.
func (o ownEvaluation) Descriptor() *clusterpb.Partition { return o.e.Descriptor }

// Entry implements gc.Evaluation.
func (o ownEvaluation) Entry() *proposal.Entry { return o.entry }

// Batch implements gc.Evaluation.
func (o ownEvaluation) Batch() *engine.StateBatch {
	o.e.openBatch()
	return o.e.batch
}

// Removed implements gc.Evaluation.
func (o ownEvaluation) Removed(garbage *mvcc.GarbageResult, sole bool) {
	e, expired := o.e, garbage.Expired
	e.proposal.sole = sole
	for i, key := range garbage.Versions {
		d := proposal.Delta{Versions: -1, Bytes: -garbage.Sizes[i]}
		if garbage.Expiring[i] {
			d.Expiring = -1
		}
		if len(expired) > 0 && expired[0] == i {
			expired, d.LiveKeys = expired[1:], -1
		}
		e.delta.Add(d)
		if e.tally == nil {
			continue
		}
		if internalKey, _, err := keys.DecodeVersioned(key); err == nil && e.tally.has(internalKey) {
			e.proposal.right.Add(d)
		}
	}
}
