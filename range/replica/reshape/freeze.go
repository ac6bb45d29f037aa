package reshape

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition that its left neighbour is to consume is frozen before, by an entry of its log. From
// then on it evaluates nothing, serves no read, and its replicas do not change: its content and its
// promises, which the left neighbour will take over, do not change any more. Requests wait, since a
// merge takes only a moment.
//
// The entry is evaluated with nothing in flight, and closes every timestamp at which the leader has
// served a read, as the entry of a split does.
//
// The entry names the epoch of the left neighbour. The neighbour's next change decides: either it
// consumes the frozen partition, or it never will. So a frozen partition thaws when its left
// neighbour has another epoch and has not consumed it. Nothing else ends the freeze, least of all
// time.

// FreezeFor freezes the partition, if this replica leads and the descriptor has the epoch of now.
// by is the descriptor of the left neighbour, which is to consume the partition as its next change.
// FreezeFor returns when the freeze is applied here. When ctx ends first, it may still take effect.
func (r *Reshaper) FreezeFor(ctx context.Context, now, by *clusterpb.Partition) error {
	next := proto.Clone(now).(*clusterpb.Partition)
	next.Membership++
	next.Frozen = &clusterpb.Freeze{Partition: by.GetId(), Generation: by.GetGeneration(),
		Membership: by.GetMembership()}
	value, err := proto.Marshal(next)
	if err != nil {
		return err
	}
	freeze := func(e Evaluation) (bool, error) {
		if err := CheckFreeze(e.Descriptor(), next); err != nil {
			return false, err
		}
		if err := checkNeighbours(by, e.Descriptor()); err != nil {
			return false, err
		}
		// The entry closes what an earlier leader has served, too.
		if err := e.ClockConfirmed(); err != nil {
			return false, err
		}
		err := set(e, local{keys.LocalKey(r.replica.ID(), keys.SuffixDescriptor), value})
		if err != nil {
			return false, err
		}
		return true, e.HoldBack()
	}
	if _, err := r.replica.Propose(ctx, proposal.KindFreeze, freeze); err != nil {
		return fmt.Errorf("partition %s: freezing it: %w", r.replica.ID(), err)
	}
	return nil
}

// CheckFreeze reports why next is not the descriptor of a partition that is being frozen.
func CheckFreeze(now, next *clusterpb.Partition) error {
	if now.Frozen != nil {
		return fmt.Errorf("it is frozen already, for partition %d", now.Frozen.Partition)
	}
	if err := allVoters(now); err != nil {
		return err
	}
	f := next.Frozen
	if f.GetPartition() == 0 || f.GetPartition() == now.Id || f.GetGeneration() == 0 {
		return fmt.Errorf("it would be frozen for partition %d of generation %d", f.GetPartition(),
			f.GetGeneration())
	}
	expected := proto.Clone(now).(*clusterpb.Partition)
	expected.Membership, expected.Frozen = now.Membership+1, f
	if !proto.Equal(expected, next) {
		return fmt.Errorf("it is at epoch (%d, %d), and what was to be frozen is another one, (%d, %d)",
			now.Generation, now.Membership, next.Generation, next.Membership-1)
	}
	return nil
}

// allVoters names a replica of a partition that is not a permanent voter.
func allVoters(p *clusterpb.Partition) error {
	for _, replica := range p.Replicas {
		if replica.Role != clusterpb.ReplicaRole_VOTER {
			return fmt.Errorf("replica %d on node %d is no voter, or not for ever: partitions split and "+
				"merge when no change of their replicas is under way", replica.Replica, replica.Node)
		}
	}
	return nil
}

// Thaw ends a freeze, if this replica leads, and this node's replica of its left neighbour has not
// consumed it. The caller has seen the neighbour at a later epoch than the freeze names. Thaw
// returns when the thaw is applied here.
func (r *Reshaper) Thaw(ctx context.Context, f *clusterpb.Freeze) error {
	err := r.replica.ProposeThaw(ctx, func(e Evaluation) (bool, error) {
		if !proto.Equal(e.Descriptor().Frozen, f) {
			return false, errors.New("it is not frozen any more, or for another epoch")
		}
		// INVARIANT: a left neighbour marks this replica as consumed before its own descriptor
		// shows it.
		if err := r.replica.Subsumed(); err != nil {
			return false, err
		}
		value, err := proto.Marshal(thawed(e.Descriptor()))
		if err != nil {
			return false, err
		}
		return true, set(e, local{keys.LocalKey(r.replica.ID(), keys.SuffixDescriptor), value})
	})
	if err != nil {
		return fmt.Errorf("partition %s: ending its freeze: %w", r.replica.ID(), err)
	}
	return nil
}

// thawed returns the descriptor without the freeze.
func thawed(p *clusterpb.Partition) *clusterpb.Partition {
	next := proto.Clone(p).(*clusterpb.Partition)
	next.Membership, next.Frozen = next.Membership+1, nil
	return next
}

// CheckThaw allows a frozen partition only the change that ends the freeze, and others no such
// change.
func CheckThaw(now, next *clusterpb.Partition) error {
	switch {
	case now.Frozen == nil && next.Frozen == nil:
		return nil
	case now.Frozen == nil:
		return errors.New("it would be frozen by another entry than that of a freeze")
	case !proto.Equal(next, thawed(now)):
		return fmt.Errorf("it is frozen for partition %d, and does not change", now.Frozen.Partition)
	}
	return nil
}

// StageFreeze checks an entry that freezes the partition, adds its effects to a batch, and returns
// the descriptor. change is set if the entry is marked as one that changes the replicas.
func StageFreeze(batch *engine.StateBatch, now *clusterpb.Partition, p *proposal.Entry,
	change bool) (next *clusterpb.Partition, err error) {
	id := keys.PartitionID(now.Id)
	err = proposal.WalkBatch(p.Batch, func(deletion bool, key, value []byte) (err error) {
		of, suffix, err := keys.DecodeLocalKey(key)
		if err != nil || deletion || of != id || suffix != keys.SuffixDescriptor || next != nil {
			return fmt.Errorf("%s in a freeze", keys.PrettyState(key))
		}
		if next, err = storage.DecodeDescriptor(id, value); err != nil {
			return err
		}
		return batch.Set(key, value, nil)
	})
	if err == nil {
		if next == nil || change {
			err = fmt.Errorf("a freeze without a descriptor, or that changes replicas: %v", change)
		} else {
			err = CheckFreeze(now, next)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
	}
	return next, nil
}
