package replica

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/gc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Commands that no client has sent: how the rooms that change a partition by entries of their own
// have these evaluated.

// What becomes of a command of this package's own (own_commands.go) that is not
// applied.
var (
	errNotLeader = errors.New("this replica does not lead the partition, or not yet; the " +
		"command had no effect")
	errOutcomeUnknown = errors.New("leadership was lost; the command may or may not have " +
		"taken effect")
	errClockUnbelieved = errors.New("the clock of this node has not been confirmed by those of its " +
		"peers; the command had no effect")
	errOverloaded = errors.New("the partition's queue is full; the command had no effect")
)

// Conflicts counts a conflict of transactions.
func (r *Replica) Conflicts() { r.node.Metrics.Transactions.Conflicts.Inc() }

// errNothingToDo ends the evaluation of a command that has nothing to propose.
var errNothingToDo = errors.New("nothing to do")

// errAgain has a command evaluated again for the next entry: this one is full.
var errAgain = errors.New("the entry is full")

// command has a command of this package's own evaluated in its turn, and waits until it is applied
// here. When ctx ends first, the command may still take effect.
func (r *Replica) command(ctx context.Context, kind proposal.Kind,
	evaluate func(*evaluation, *proposal.Entry) (bool, error)) error {
	return r.queueCommand(ctx, &internalCommand{kind: kind, evaluate: evaluate})
}

// queueCommand is command for one that is made already; done is set here.
func (r *Replica) queueCommand(ctx context.Context, c *internalCommand) error {
	if !r.enter() {
		return ErrClosed
	}
	defer r.exit()
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
func (r *Replica) Fence(ctx context.Context) error {
	return r.command(ctx, proposal.KindWrite,
		func(*evaluation, *proposal.Entry) (bool, error) { return true, nil })
}

// propose has a room's command evaluated in its turn, and waits until it is applied here.
func (r *Replica) propose(ctx context.Context, c internalCommand,
	evaluate func(ownEvaluation) (bool, error)) (proposed bool, err error) {
	c.evaluate = func(e *evaluation, p *proposal.Entry) (bool, error) {
		propose, err := evaluate(ownEvaluation{e, p})
		if err == nil && !propose {
			err = errNothingToDo
		}
		return propose, err
	}
	if err = r.queueCommand(ctx, &c); errors.Is(err, errNothingToDo) {
		return false, nil
	}
	return err == nil, err
}

// GC is the garbage collector of the partition.
func (r *Replica) GC() *gc.Collector { return r.gc }

// collected is the replica as its garbage collector needs it: a gc.Replica.
type collected struct{ *Replica }

func (r collected) Threshold() hlc.Timestamp { return *r.threshold.Load() }

// BeginCollection returns the memory of the timestamp cache.
func (r collected) BeginCollection() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.cache.Release()
}

func (r collected) Propose(ctx context.Context, kind proposal.Kind,
	evaluate func(gc.Evaluation) (bool, error)) (proposed bool, err error) {
	return r.propose(ctx, internalCommand{kind: kind},
		func(e ownEvaluation) (bool, error) { return evaluate(e) })
}

func (r collected) Enter() bool                  { return r.enter() }
func (r collected) Exit()                        { r.exit() }
func (r collected) Passed(ts hlc.Timestamp) bool { return r.passed(ts) }

// Reshape is what reshapes the partition.
func (r *Replica) Reshape() *reshape.Reshaper { return r.reshape }

// reshaped is the replica as its reshaper needs it: a reshape.Replica.
type reshaped struct{ *Replica }

func (r reshaped) Propose(ctx context.Context, kind proposal.Kind,
	evaluate func(reshape.Evaluation) (bool, error)) (proposed bool, err error) {
	return r.propose(ctx, internalCommand{kind: kind},
		func(e ownEvaluation) (bool, error) { return evaluate(e) })
}

func (r reshaped) ProposeThaw(ctx context.Context,
	evaluate func(reshape.Evaluation) (bool, error)) error {
	_, err := r.propose(ctx, internalCommand{kind: proposal.KindDescriptor, thaws: true},
		func(e ownEvaluation) (bool, error) { return evaluate(e) })
	return err
}

func (r reshaped) Consumed() error {
	if r.consumed.Load() {
		return errConsumed
	}
	return nil
}

func (r reshaped) EndSplitStats(t *reshape.SplitStats) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.splitStats == t {
		r.mu.splitStats = nil
	}
}

func (r reshaped) Enter() error {
	if !r.enter() {
		return ErrClosed
	}
	return nil
}

func (r reshaped) Exit() { r.exit() }

// ownEvaluation is the evaluation of a command that no client has sent: a gc.Evaluation and a
// reshape.Evaluation.
type ownEvaluation struct {
	e     *evaluation
	entry *proposal.Entry
}

func (o ownEvaluation) Descriptor() *clusterpb.Partition { return o.e.Descriptor }
func (o ownEvaluation) Entry() *proposal.Entry           { return o.entry }

func (o ownEvaluation) Batch() *engine.StateBatch {
	o.e.openBatch()
	return o.e.batch
}

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
		if e.splitStats == nil {
			continue
		}
		if internalKey, _, err := keys.DecodeVersioned(key); err == nil && e.splitStats.Has(internalKey) {
			e.proposal.right.Add(d)
		}
	}
}

func (o ownEvaluation) Changes(delta proposal.Delta, highest hlc.Timestamp) {
	o.e.delta, o.e.highest = delta, highest
}

func (o ownEvaluation) ChangesReplicas(next *group.Configuration) { o.e.change = next }

func (o ownEvaluation) ClockConfirmed() error {
	if o.e.lowDue {
		return errClockUnbelieved
	}
	return nil
}

func (o ownEvaluation) HoldBack() error {
	return o.inEpoch(func(r *Replica) error {
		// INVARIANT: under the lock under which reads enter the timestamp cache: what is not in it by
		// now waits for the entry.
		o.entry.Closed = r.servedLocked()
		r.mu.holding = o.e.proposal
		return nil
	})
}

func (o ownEvaluation) BeginSplitStats(t *reshape.SplitStats) error {
	return o.inEpoch(func(r *Replica) error {
		if r.mu.splitStats != nil {
			return errNotLeader
		}
		r.mu.splitStats = t
		return nil
	})
}

func (o ownEvaluation) TakeSplitStats(t *reshape.SplitStats) (stats storage.Stats, err error) {
	err = o.inEpoch(func(r *Replica) error {
		if r.mu.splitStats != t {
			return errNotLeader
		}
		stats, r.mu.splitStats = t.Stats(), nil
		return nil
	})
	return stats, err
}

// inEpoch does something with the replica's lock held, if the epoch lasts.
func (o ownEvaluation) inEpoch(do func(r *Replica) error) error {
	r := o.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.Is(o.e.epoch) {
		return errNotLeader
	}
	return do(r)
}
