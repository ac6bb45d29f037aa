package replica

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ChangeDescriptor replaces the descriptor by one with a higher epoch and the same span, through
// the log, and waits until it is applied here. Requests that were routed by an older generation are
// refused from then on. Replicas change by one step (group.Configuration.CanBecome), and the one
// that leads stays a voter.
func (r *Replica) ChangeDescriptor(ctx context.Context, next *clusterpb.Partition) error {
	if err := keys.ValidatePartition(next); err != nil {
		return err
	}
	value, err := next.MarshalVT()
	if err != nil {
		return fmt.Errorf("partition %s: encoding the descriptor: %w", r.id, err)
	}
	err = r.command(ctx, proposal.KindDescriptor,
		func(e *evaluation, _ *proposal.Entry) (bool, error) {
			now := e.Descriptor
			switch {
			case next.Id != now.Id || !keys.PartitionSpan(next).Equal(keys.PartitionSpan(now)):
				return false, fmt.Errorf("the new descriptor is of %s %s, which is another "+
					"partition or span",
					keys.PartitionID(next.Id), keys.PartitionSpan(next))
			case next.Generation < now.Generation || next.Membership < now.Membership ||
				(next.Generation == now.Generation && next.Membership == now.Membership):
				return false, fmt.Errorf("the new descriptor's epoch (%d, %d) "+
					"is not above the present (%d, %d)",
					next.Generation, next.Membership, now.Generation, now.Membership)
			}
			if err := checkThaw(now, next); err != nil {
				return false, err
			}
			change, err := changeOf(now, next)
			if err != nil {
				return false, err
			}
			if change != nil && !change.Electable(r.self) {
				return false, fmt.Errorf("replica %s leads, and would not be a voter at the end of it: "+
					"it has to hand over before", r.self)
			}
			e.change = change
			e.batch = r.state.NewBatch()
			return true, e.batch.Set(keys.LocalKey(r.id, keys.SuffixDescriptor), value, nil)
		})
	if err != nil {
		return fmt.Errorf("partition %s: changing the descriptor: %w", r.id, err)
	}
	return nil
}

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
