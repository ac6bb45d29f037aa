package reshape

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// ChangeDescriptor replaces the descriptor by one with a higher epoch and the same span, through
// the log, and waits until it is applied here. Requests that were routed by an older generation are
// refused from then on. Replicas change by one step (group.Configuration.CanBecome), and the leader
// stays a voter.
func (r *Reshaper) ChangeDescriptor(ctx context.Context, next *clusterpb.Partition) error {
	if err := keys.ValidatePartition(next); err != nil {
		return err
	}
	value, err := proto.Marshal(next)
	if err != nil {
		return fmt.Errorf("partition %s: encoding the descriptor: %w", r.replica.ID(), err)
	}
	replace := func(e Evaluation) (bool, error) {
		now := e.Descriptor()
		switch {
		case next.Id != now.Id || !keys.PartitionSpan(next).Equal(keys.PartitionSpan(now)):
			return false, fmt.Errorf("the new descriptor is of %s %s, which is another partition or span",
				keys.PartitionID(next.Id), keys.PartitionSpan(next))
		case next.Generation < now.Generation || next.Membership < now.Membership ||
			(next.Generation == now.Generation && next.Membership == now.Membership):
			return false, fmt.Errorf("the new descriptor's epoch (%d, %d) is not above the present (%d, %d)",
				next.Generation, next.Membership, now.Generation, now.Membership)
		}
		if err := CheckThaw(now, next); err != nil {
			return false, err
		}
		change, err := changeOf(now, next)
		if err != nil {
			return false, err
		}
		if self := r.replica.ReplicaID(); change != nil && !change.Electable(self) {
			return false, fmt.Errorf("replica %s leads, and would not be a voter at the end of it: it has "+
				"to hand over before", self)
		}
		e.ChangesReplicas(change)
		return true, set(e, local{keys.LocalKey(r.replica.ID(), keys.SuffixDescriptor), value})
	}
	if _, err := r.replica.Propose(ctx, proposal.KindDescriptor, replace); err != nil {
		return fmt.Errorf("partition %s: changing the descriptor: %w", r.replica.ID(), err)
	}
	return nil
}

// changeOf returns the configuration that a new descriptor leads to; nil if it does not change.
func changeOf(now, next *clusterpb.Partition) (*group.Configuration, error) {
	from, to := group.ConfigurationOf(now), group.ConfigurationOf(next)
	if from.Equal(&to) {
		return nil, nil
	}
	if err := from.CanBecome(&to); err != nil {
		return nil, err
	}
	return &to, nil
}

// CheckChange checks that an entry changes the configuration if and only if it was proposed as a
// change of it.
func CheckChange(now, next *clusterpb.Partition, change bool) error {
	to, err := changeOf(now, next)
	if err != nil {
		return err
	}
	if (to != nil) != change {
		return fmt.Errorf("the entry is marked as a change of replicas: %v, and it is one: %v", change,
			to != nil)
	}
	return nil
}
