package operators

import (
	"bytes"
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Merge records an operator that merges a partition with its right neighbour. Only the leader
// answers.
func (s *Operators) Merge(
	ctx context.Context, r *clusterpb.MergePartitionRequest,
) (*clusterpb.MergePartitionResponse, error) {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	left, err := s.Find(v, keys.PartitionID(r.Partition))
	if err == nil && left == nil {
		err = status.Errorf(codes.NotFound, "there is no partition %d", r.Partition)
	}
	var right *clusterpb.Partition
	if err == nil {
		right, err = rightOf(v, left)
	}
	if err != nil {
		return nil, s.meta.Status(err)
	}
	same := func(o *serverpb.Operator) bool { return o.Right == right.Id }
	o, err := underWay(v, left.Id, same)
	if err == nil && o == nil {
		var conditions []*storepb.Compare
		if o, err = s.mergeAsked(v, left.Id, right.Id); err == nil {
			if conditions, err = mergeConditions(v, o); err == nil {
				err = s.begin(ctx, o, conditions)
			}
		}
	}
	if err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.MergePartitionResponse{Operator: o.Id, Partition: o.Partition, Right: o.Right},
		nil
}

// rightOf returns the right neighbour of a partition, or an error if there is none.
func rightOf(v *store.View, left *clusterpb.Partition) (*clusterpb.Partition, error) {
	for kv, err := range v.All(meta.PartitionsOf(keys.KeyspaceID(left.Keyspace))) {
		if err != nil {
			return nil, err
		}
		p, err := meta.DecodePartition(kv.Key, kv.Value)
		if err != nil {
			return nil, err
		}
		if bytes.Equal(p.Start, left.End) && steps.Neighbours(left, p) {
			return p, nil
		}
	}
	whole := "its keyspace"
	if left.PrefixLength == keys.HashPrefixLength {
		whole = fmt.Sprintf("hash number %d, and partitions of two hash numbers never merge", left.Hash)
	}
	return nil, status.Errorf(codes.FailedPrecondition,
		"partition %d has no right neighbour: it is the last one of %s", left.Id, whole)
}

// mergeAsked makes the operator that a user asked for, or returns an error if the merge is not
// possible. It does not check whether a user asked for the boundary: the user does not want it any
// more.
func (s *Operators) mergeAsked(v *store.View, leftID, rightID uint64) (*serverpb.Operator, error) {
	left, err := s.toChange(v, leftID)
	if err != nil {
		return nil, err
	}
	right, err := s.toChange(v, rightID)
	if err != nil {
		return nil, err
	}
	ks, err := meta.LoadKeyspace(v, keys.KeyspaceID(left.Keyspace))
	if err != nil {
		return nil, err
	}
	alive, err := meta.LoadAlive(v)
	if err != nil {
		return nil, err
	}
	not := func(format string, args ...any) error {
		return status.Errorf(codes.FailedPrecondition, format, args...)
	}
	for _, d := range []*clusterpb.Partition{left, right} {
		if d.Frozen != nil {
			return nil, not("partition %d is frozen since an attempt to merge it; it thaws in a moment: "+
				"try again", d.Id)
		}
		if !steps.AllVote(d) {
			return nil, not("the replicas of partition %d are being changed; try again when all of them "+
				"vote", d.Id)
		}
		for _, r := range d.Replicas {
			if !alive[r.Node] {
				return nil, not("node %d, which has a replica of partition %d, is not alive, and a merge "+
					"needs all replicas", r.Node, d.Id)
			}
		}
	}
	leftSize := s.reports.Of(keys.PartitionID(leftID)).Report.GetSizeBytes()
	rightSize := s.reports.Of(keys.PartitionID(rightID)).Report.GetSizeBytes()
	switch most, _ := keys.SplitSizes(ks.Keyspace); {
	case !steps.Neighbours(left, right):
		return nil, not("the spans of partitions %d and %d are changing; try again", leftID, rightID)
	case len(left.Replicas) != len(right.Replicas):
		return nil, not("partition %d has %d replicas and partition %d has %d; try again when they "+
			"have the same number", leftID, len(left.Replicas), rightID, len(right.Replicas))
	case !ks.NoAuto && leftSize+rightSize >= most:
		return nil, not("partitions %d and %d have %d bytes together, and would be split again at "+
			"once: the keyspace splits at %d; alter its split size first", leftID, rightID,
			leftSize+rightSize, most)
	}
	o := steps.NewMerge(left, right)
	o.Asked, o.Reason = true, "asked for"
	if !steps.Together(left, right) {
		// The smaller partition is moved.
		if o.Moves, o.Bytes = rightID, rightSize; leftSize < rightSize {
			o.Moves, o.Bytes, o.Membership = leftID, leftSize, right.Membership
		}
	}
	return o, nil
}

// mergeConditions returns the conditions that the keyspace and both partitions are unchanged since
// the view. So no merge begins in a keyspace that is being dropped.
func mergeConditions(v *store.View, o *serverpb.Operator) ([]*storepb.Compare, error) {
	keyspace := keys.KeyspaceID(o.Keyspace)
	ks, err := meta.LoadKeyspace(v, keyspace)
	if err != nil {
		return nil, err
	}
	conditions := []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(keyspace), ks.Revision)}
	for _, id := range []uint64{o.Partition, o.Right} {
		_, revision, err := meta.LoadPartition(v, keyspace, keys.PartitionID(id))
		if err != nil {
			return nil, err
		}
		conditions = append(conditions,
			store.ModifiedAt(meta.PartitionKey(keyspace, keys.PartitionID(id)), revision))
	}
	return conditions, nil
}

// proposedMerge makes the operator of a merge that the planner proposes, and the conditions for
// begin. It returns nil if the proposal is outdated.
func (s *Operators) proposedMerge(v *store.View, p *planner.Operator,
) (*serverpb.Operator, []*storepb.Compare, error) {
	ks, err := meta.LoadKeyspace(v, p.Keyspace)
	if err != nil || ks.Keyspace == nil || ks.State != clusterpb.KeyspaceState_ACTIVE {
		return nil, nil, err
	}
	find := func(id keys.PartitionID, epoch planner.Epoch) (*clusterpb.Partition, error) {
		stored, _, err := meta.LoadPartition(v, p.Keyspace, id)
		if err != nil || stored == nil {
			return nil, err
		}
		d := s.reports.Newest(id, stored)
		if d.Generation != epoch.Generation || d.Membership != epoch.Membership || d.Frozen != nil {
			return nil, nil
		}
		return d, nil
	}
	left, err := find(p.Partition, p.Epoch)
	if err != nil || left == nil {
		return nil, nil, err
	}
	right, err := find(p.Right, p.RightEpoch)
	if err != nil || right == nil || !steps.Neighbours(left, right) || !steps.Together(left, right) {
		return nil, nil, err
	}
	o := steps.NewMerge(left, right)
	giveReasons(o, p)
	conditions, err := mergeConditions(v, o)
	return o, conditions, err
}

// Thaw has the merge attempt undone for which a partition is frozen, if the freeze is still valid.
func (s *Operators) Thaw(ctx context.Context, keyspace keys.KeyspaceID, id keys.PartitionID) error {
	v := s.store.Stale()
	right, _, err := meta.LoadPartition(v, keyspace, id)
	if err != nil || right == nil {
		return err
	}
	right = s.reports.Newest(id, right)
	f := right.Frozen
	left, _, err := meta.LoadPartition(v, keyspace, keys.PartitionID(f.GetPartition()))
	if err != nil || left == nil || f == nil {
		return err
	}
	left = s.reports.Newest(keys.PartitionID(left.Id), left)
	if !steps.FreezesFor(f, left) || !steps.Neighbours(left, right) {
		return nil // it thaws without help
	}
	o := steps.NewMerge(left, right)
	o.Reason = "the right one is frozen, and nothing carries that merge on"
	o.Cancelled, o.Outcome, o.CancelledAt = true, "it has to thaw", left.Membership
	conditions, err := mergeConditions(v, o)
	if err != nil {
		return err
	}
	return s.begin(ctx, o, conditions)
}
