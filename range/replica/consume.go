package replica

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition merges with its right neighbour by an entry of its own log: it consumes it. The
// neighbour is frozen before (freeze.go), on the same nodes, and all its replicas have the freeze
// in their logs. No data moves: the entry replaces the descriptor by one that ends where the
// neighbour did, and takes over what that one has promised: the timestamps that it has closed, its
// garbage collection threshold, and its statistics.
//
// The entry takes effect only if it is the next change of the epoch that the freeze names. So no
// intent is needed beforehand: the epoch is the attempt, and any other change of it gives the
// attempt up.
//
// A node that applies the entry brings its replica of the neighbour to the freeze first
// (consume_apply.go).

// errConsumed is for a replica whose partition was merged into its left neighbour on this node.
var errConsumed = errors.New("its left neighbour has consumed it")

// Consume merges the partition with its right neighbour, which is frozen for it, if this replica
// leads. right is the neighbour's replica on this node, which leads as well, and knows that the
// others have its log up to Replica.FrozenAt. next is what the descriptor becomes. It returns when
// that is applied here. When ctx ends first, it may still take effect.
func (r *Replica) Consume(ctx context.Context, next *clusterpb.Partition, right *Replica) error {
	value, err := next.MarshalVT()
	if err != nil {
		return err
	}
	err = r.command(ctx, proposal.KindMerge, func(e *evaluation, p *proposal.Entry) (bool, error) {
		descriptor, record, err := right.frozenState()
		if err != nil {
			return false, err
		}
		if err := checkConsume(e.Descriptor, next, descriptor); err != nil {
			return false, err
		}
		other, err := descriptor.MarshalVT()
		if err != nil {
			return false, err
		}
		e.batch = r.state.NewBatch()
		for _, set := range [...]struct{ key, value []byte }{
			{keys.LocalKey(r.id, keys.SuffixDescriptor), value},
			{keys.LocalKey(right.id, keys.SuffixDescriptor), other},
			{keys.LocalKey(right.id, keys.SuffixApplied), record.Append(nil)},
		} {
			if err := e.batch.Set(set.key, set.value, nil); err != nil {
				return false, err
			}
		}
		e.delta = proposal.Delta{LiveKeys: int64(record.Stats.LiveKeys),
			Versions: int64(record.Stats.Versions), Bytes: int64(record.Stats.Bytes),
			Expiring: int64(record.Stats.Expiring)}
		e.highest = record.Highest
		if err := r.holdBack(e, p); err != nil {
			return false, err
		}
		p.Closed = hlc.Max(p.Closed, record.Closed)
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("partition %s: merging it with partition %s: %w", r.id, right.id, err)
	}
	return nil
}

// frozenState is what a frozen partition leaves behind: its descriptor, and what it has applied, at
// the index of the freeze.
func (r *Replica) frozenState() (*clusterpb.Partition, storage.Record, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d, record := r.Descriptor(), r.mu.applied
	switch {
	case r.mu.failed != nil:
		return nil, record, r.mu.failed
	case r.consumed.Load():
		return nil, record, errConsumed
	case d.GetFrozen() == nil:
		return nil, record, fmt.Errorf("partition %s is not frozen", r.id)
	}
	record.Index = r.descriptorAt.Load()
	return d, record, nil
}

// FrozenAt is an index of the log at or behind the entry by which the partition was frozen; false
// if it is not frozen, as far as is applied here.
func (r *Replica) FrozenAt() (index uint64, frozen bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.descriptorAt.Load(), r.Descriptor().GetFrozen() != nil
}

// checkNeighbours says why a partition cannot consume another one.
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

// checkConsume says why a partition cannot consume another one, and become next.
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
