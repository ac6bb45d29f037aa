package reshape

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition merges with its right neighbour by an entry of its own log: it consumes the
// neighbour. The neighbour is frozen before (freeze.go), on the same nodes, and all its replicas
// have the freeze in their logs. No data moves: the entry replaces the descriptor by one that ends
// where the neighbour did, and takes over the neighbour's closed timestamp, garbage collection
// threshold and statistics.
//
// The entry takes effect only if it is the next change after the epoch that the freeze names. So no
// intent is needed beforehand: the epoch identifies the attempt, and any other change of the epoch
// cancels it.
//
// A node that applies the entry brings its replica of the neighbour to the freeze first
// (merge_apply.go of package replica).

// Consume merges the partition with its right neighbour, which is frozen for it, if this replica
// leads. right is the neighbour's replica on this node, which leads as well, and knows that the
// others have its log up to Replica.FrozenAt. next is the descriptor after the merge. Consume
// returns when the merge is applied here. When ctx ends first, it may still take effect.
func (r *Reshaper) Consume(ctx context.Context, next *clusterpb.Partition, right Frozen) error {
	value, err := proto.Marshal(next)
	if err != nil {
		return err
	}
	consume := func(e Evaluation) (bool, error) {
		descriptor, record, err := right.FrozenState()
		if err != nil {
			return false, err
		}
		if err := checkConsume(e.Descriptor(), next, descriptor); err != nil {
			return false, err
		}
		other, err := proto.Marshal(descriptor)
		if err != nil {
			return false, err
		}
		err = set(e, local{keys.LocalKey(r.replica.ID(), keys.SuffixDescriptor), value},
			local{keys.LocalKey(right.ID(), keys.SuffixDescriptor), other},
			local{keys.LocalKey(right.ID(), keys.SuffixApplied), record.Append(nil)})
		if err != nil {
			return false, err
		}
		e.Changes(proposal.Delta{LiveKeys: int64(record.Stats.LiveKeys),
			Versions: int64(record.Stats.Versions), Bytes: int64(record.Stats.Bytes),
			Expiring: int64(record.Stats.Expiring)}, record.Highest)
		if err := e.HoldBack(); err != nil {
			return false, err
		}
		e.Entry().Closed = hlc.Max(e.Entry().Closed, record.Closed)
		return true, nil
	}
	if _, err := r.replica.Propose(ctx, proposal.KindMerge, consume); err != nil {
		return fmt.Errorf("partition %s: merging it with partition %s: %w", r.replica.ID(), right.ID(),
			err)
	}
	return nil
}

// Frozen is the replica of a right neighbour that is frozen.
type Frozen interface {
	ID() keys.PartitionID
	// FrozenState returns what a frozen partition leaves behind: its descriptor, and its applied
	// record at the index of the freeze.
	FrozenState() (*clusterpb.Partition, storage.Record, error)
}

// checkNeighbours reports why a partition cannot consume another one.
func checkNeighbours(left, right *clusterpb.Partition) error {
	switch {
	case left.GetKeyspace() != right.GetKeyspace() || left.GetHash() != right.GetHash() ||
		left.GetPrefixLength() != right.GetPrefixLength():
		return fmt.Errorf("partitions %d and %d are of different keyspaces, or hash numbers",
			left.GetId(), right.GetId())
	case left.GetId() == right.GetId() || string(left.GetEnd()) != string(right.GetStart()):
		return fmt.Errorf("partition %d, %s, is not the left neighbour of partition %d, %s",
			left.GetId(), keys.PartitionSpan(left), right.GetId(), keys.PartitionSpan(right))
	case len(left.GetReplicas()) != len(right.GetReplicas()):
		return fmt.Errorf("partitions %d and %d have different numbers of replicas", left.GetId(),
			right.GetId())
	case left.GetFrozen() != nil:
		return fmt.Errorf("partition %d is frozen itself", left.GetId())
	}
	if err := allVoters(left); err != nil {
		return err
	}
	if err := allVoters(right); err != nil {
		return err
	}
	nodes := make(map[uint64]bool, len(left.GetReplicas()))
	for _, replica := range left.GetReplicas() {
		nodes[replica.Node] = true
	}
	for _, replica := range right.GetReplicas() {
		if !nodes[replica.Node] {
			return fmt.Errorf("partition %d has a replica on node %d, and partition %d has none there",
				right.GetId(), replica.Node, left.GetId())
		}
	}
	return nil
}

// checkConsume reports why a partition cannot consume another one and become next.
func checkConsume(now, next, right *clusterpb.Partition) error {
	if err := keys.ValidatePartition(next); err != nil {
		return err
	}
	if err := checkNeighbours(now, right); err != nil {
		return err
	}
	if f := right.GetFrozen(); f.GetPartition() != now.Id || f.GetGeneration() != now.Generation ||
		f.GetMembership() != now.Membership {
		return fmt.Errorf("partition %d is frozen for epoch (%d, %d) of partition %d, and this is "+
			"epoch (%d, %d) of partition %d", right.GetId(), f.GetGeneration(), f.GetMembership(),
			f.GetPartition(), now.Generation, now.Membership, now.Id)
	}
	expected := proto.Clone(now).(*clusterpb.Partition)
	expected.Generation, expected.End = max(now.Generation, right.Generation)+1, right.End
	if !proto.Equal(expected, next) {
		return fmt.Errorf("what it is to become is not what it is with partition %d: %s with "+
			"generation %d, and membership %d", right.GetId(), keys.PartitionSpan(next), next.Generation,
			next.Membership)
	}
	return nil
}

// Merge is an entry by which a partition consumes its right neighbour.
type Merge struct {
	Left, Right *clusterpb.Partition
	// Record is the applied record of the neighbour at the index of its freeze.
	Record storage.Record
}

// DecodeMerge reads an entry by which the partition consumes its right neighbour, and checks it.
// change is set if the entry is marked as one that changes the replicas.
func DecodeMerge(now *clusterpb.Partition, p *proposal.Entry, change bool) (*Merge, error) {
	m := &Merge{}
	id, right, recorded := keys.PartitionID(now.Id), keys.PartitionID(0), false
	err := proposal.WalkBatch(p.Batch, func(deletion bool, key, value []byte) (err error) {
		of, suffix, err := keys.DecodeLocalKey(key)
		switch {
		case deletion || err != nil:
			return fmt.Errorf("%s in a merge", keys.PrettyState(key))
		case of == id && suffix == keys.SuffixDescriptor && m.Left == nil:
			m.Left, err = storage.DecodeDescriptor(id, value)
		case of != id && suffix == keys.SuffixDescriptor && m.Right == nil:
			right = of
			m.Right, err = storage.DecodeDescriptor(of, value)
		case of != id && of == right && suffix == keys.SuffixApplied && !recorded:
			m.Record, err = storage.DecodeApplied(value)
			recorded = true
		default:
			err = fmt.Errorf("%s in a merge", keys.PrettyState(key))
		}
		return err
	})
	if err == nil {
		if m.Left == nil || m.Right == nil || !recorded || change {
			err = fmt.Errorf("a merge without both parts, or that changes replicas: %v", change)
		} else {
			err = checkConsume(now, m.Left, m.Right)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
	}
	return m, nil
}
