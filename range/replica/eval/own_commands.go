package eval

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// queueCommand queues a command of this package's own, and waits until it is applied here. It sets
// done itself. When ctx ends first, the command may still take effect.
func (r *Evaluator) queueCommand(ctx context.Context, c *internalCommand) error {
	if !r.Enter() {
		return machine.ErrClosed
	}
	defer r.Exit()
	done := make(chan error, 1)
	c.done = func(err error) { done <- err }
	r.enqueueInternal(c)
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Fence appends an entry that changes nothing, and waits until it is applied here.
func (r *Evaluator) Fence(ctx context.Context) error {
	return r.queueCommand(ctx, &internalCommand{kind: proposal.KindWrite,
		evaluate: func(*evaluation, *proposal.Entry) (bool, error) { return true, nil }})
}

// Propose queues a command of another room, and waits until it is applied here.
func (r *Evaluator) Propose(ctx context.Context, kind proposal.Kind,
	evaluate func(Own) (bool, error)) (proposed bool, err error) {
	return r.proposeOwn(ctx, &internalCommand{kind: kind}, evaluate)
}

// ProposeThaw is Propose for a command that ends the freeze of the partition.
func (r *Evaluator) ProposeThaw(ctx context.Context,
	evaluate func(Own) (bool, error)) error {
	_, err := r.proposeOwn(ctx, &internalCommand{kind: proposal.KindDescriptor, thaws: true}, evaluate)
	return err
}

func (r *Evaluator) proposeOwn(ctx context.Context, c *internalCommand,
	evaluate func(Own) (bool, error)) (proposed bool, err error) {
	c.evaluate = func(e *evaluation, p *proposal.Entry) (bool, error) {
		propose, err := evaluate(Own{e, p})
		if err == nil && !propose {
			err = errNothingToDo
		}
		return propose, err
	}
	if err = r.queueCommand(ctx, c); errors.Is(err, errNothingToDo) {
		return false, nil
	}
	return err == nil, err
}

// Own is the evaluation of a command that no client has sent: a gc.Evaluation and a
// reshape.Evaluation.
type Own struct {
	e     *evaluation
	entry *proposal.Entry
}

func (o Own) Descriptor() *clusterpb.Partition { return o.e.Descriptor }

func (o Own) Entry() *proposal.Entry { return o.entry }

func (o Own) Batch() *engine.StateBatch {
	o.e.openBatch()
	return o.e.batch
}

func (o Own) Removed(garbage *mvcc.GarbageResult, sole bool) {
	e, expired := o.e, garbage.Expired
	e.proposal.Sole = sole
	for i, key := range garbage.Versions {
		d := proposal.Delta{Versions: -1, Bytes: -garbage.Sizes[i]}
		if garbage.Expiring[i] {
			d.Expiring = -1
		}
		if len(expired) > 0 && expired[0] == i {
			expired, d.LiveKeys = expired[1:], -1
		}
		e.delta.Add(d)
		if e.splitStats == nil {
			continue
		}
		if internalKey, _, err := keys.DecodeVersioned(key); err == nil && e.splitStats.Has(internalKey) {
			e.proposal.Right.Add(d)
		}
	}
}

func (o Own) Changes(delta proposal.Delta, highest hlc.Timestamp) {
	o.e.delta, o.e.highest = delta, highest
}

func (o Own) ChangesReplicas(next *group.Configuration) { o.e.change = next }

func (o Own) ClockConfirmed() error {
	if o.e.lowDue {
		return ErrClockUnbelieved
	}
	return nil
}

func (o Own) HoldBack() error {
	return o.inEpoch(func(r *Evaluator) error {
		// INVARIANT: the lock is that under which reads enter the timestamp cache: a read that is
		// not in the cache by now waits for the entry.
		o.entry.Closed = r.ServedLocked()
		r.Mu.Holding = o.e.proposal
		return nil
	})
}

func (o Own) BeginSplitStats(t *reshape.SplitStats) error {
	return o.inEpoch(func(r *Evaluator) error {
		if r.splitStats != nil {
			return ErrNotLeader
		}
		r.splitStats = t
		return nil
	})
}

func (o Own) TakeSplitStats(t *reshape.SplitStats) (stats storage.Stats, err error) {
	err = o.inEpoch(func(r *Evaluator) error {
		if r.splitStats != t {
			return ErrNotLeader
		}
		stats, r.splitStats = t.Stats(), nil
		return nil
	})
	return stats, err
}

// inEpoch calls do with the replica's lock held, if the epoch lasts.
func (o Own) inEpoch(do func(r *Evaluator) error) error {
	r := o.e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if !r.Mu.Leadership.Is(o.e.epoch) {
		return ErrNotLeader
	}
	return do(r)
}
