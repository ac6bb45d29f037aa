package operators

import (
	"bytes"
	"context"

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

// Split records an operator that splits the partition with a key. Only the leader answers.
func (s *Operators) Split(
	ctx context.Context, r *clusterpb.SplitPartitionRequest,
) (*clusterpb.SplitPartitionResponse, error) {
	if err := keys.ValidateUserKey(r.Key); err != nil {
		return nil, status.Errorf(codes.InvalidArgument, "split at: %v", err)
	}
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	ks, err := s.meta.KeyspaceByName(v, r.Keyspace)
	if err != nil {
		return nil, err
	}
	if ks.State != clusterpb.KeyspaceState_ACTIVE {
		return nil, status.Errorf(codes.FailedPrecondition, "the partitions of keyspace %s are being "+
			"made; `tidemark keyspace list` shows what it waits for", ks.Name)
	}
	key := internalKey(ks.Keyspace, r.Key)
	left, right, err := partitionsAt(v, ks.ID(), key)
	switch {
	case err != nil:
		return nil, s.meta.Status(err)
	case left == nil:
		return nil, status.Errorf(codes.Internal, "no partition of keyspace %s has the key %s",
			ks.Name, keys.Pretty(r.Key))
	case right != nil: // the key is a boundary already
		return &clusterpb.SplitPartitionResponse{Partition: left.Id, Child: right.Id}, nil
	}
	same := func(o *serverpb.Operator) bool { return bytes.Equal(o.SplitKey, key) }
	o, err := underWay(v, left.Id, same)
	if err == nil && o == nil {
		if o, err = s.splitAsked(v, ks, left, key); err == nil {
			err = s.recordSplit(ctx, v, ks, o)
		}
	}
	if err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.SplitPartitionResponse{Operator: o.Id, Partition: o.Partition, Child: o.Child},
		nil
}

// splitAsked makes the operator that a user asked for, or returns an error if it is not possible.
func (s *Operators) splitAsked(v *store.View, ks meta.Keyspace, d *clusterpb.Partition, key []byte,
) (*serverpb.Operator, error) {
	newest, err := s.toChange(v, d.Id)
	if err != nil {
		return nil, err
	}
	o, err := steps.NewSplit(newest, key)
	if err != nil {
		return nil, err
	}
	o.Reason, o.Asked = "asked for", true
	all, known := s.config.Table.Partitions()
	if !known {
		n, err := meta.Count(v, meta.PartitionPrefix)
		if err != nil {
			return nil, err
		}
		all = int(n)
	}
	if all >= meta.MaxPartitions {
		return nil, status.Errorf(codes.ResourceExhausted,
			"the cluster has %d partitions, the limit is %d", all, meta.MaxPartitions)
	}
	return o, nil
}

// recordSplit records an operator that splits, on condition that its keyspace and its partition are
// unchanged since the view. So no split begins in a keyspace that is being dropped.
func (s *Operators) recordSplit(ctx context.Context, v *store.View, ks meta.Keyspace,
	o *serverpb.Operator) error {
	conditions, err := splitConditions(v, ks, o)
	if err != nil {
		return err
	}
	return s.begin(ctx, o, conditions)
}

func splitConditions(v *store.View, ks meta.Keyspace, o *serverpb.Operator) ([]*storepb.Compare,
	error) {
	id := keys.PartitionID(o.Partition)
	_, revision, err := meta.LoadPartition(v, ks.ID(), id)
	return []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision),
		store.ModifiedAt(meta.PartitionKey(ks.ID(), id), revision)}, err
}

// proposedSplit makes the operator of a split at a user key that the planner proposes, and the
// conditions for begin. It returns nil if the proposal is outdated. The operator has neither
// reasons nor scores yet.
//
// A split that a user asked for waits until all replicas of its partition vote. A proposed split is
// not begun in that case: the planner proposes it again.
func (s *Operators) proposedSplit(v *store.View, keyspace keys.KeyspaceID, id keys.PartitionID,
	epoch planner.Epoch, key []byte) (*serverpb.Operator, []*storepb.Compare, error) {
	if all, known := s.config.Table.Partitions(); !known || all >= meta.MaxPartitions {
		return nil, nil, nil
	}
	ks, err := meta.LoadKeyspace(v, keyspace)
	if err != nil || ks.Keyspace == nil || ks.State != clusterpb.KeyspaceState_ACTIVE {
		return nil, nil, err
	}
	stored, _, err := meta.LoadPartition(v, keyspace, id)
	if err != nil || stored == nil {
		return nil, nil, err
	}
	d := s.reports.Newest(id, stored)
	if d.Generation != epoch.Generation || d.Membership != epoch.Membership || !steps.AllVote(d) {
		return nil, nil, nil
	}
	o, err := steps.NewSplit(d, keys.InternalKey(d, key))
	if err != nil {
		return nil, nil, err
	}
	conditions, err := splitConditions(v, ks, o)
	return o, conditions, err
}

// internalKey returns the internal key of a user key in a keyspace.
func internalKey(ks *clusterpb.Keyspace, key []byte) []byte {
	prefix := keys.KeyspacePrefix(keys.KeyspaceID(ks.Id))
	if ks.Partitioning == clusterpb.Partitioning_HASH {
		number := keys.HashPartition(key, ks.HashPartitions)
		prefix = keys.HashPrefix(keys.KeyspaceID(ks.Id), uint16(number))
	}
	return append(prefix, key...)
}

// partitionsAt returns the partition of a keyspace that contains an internal key. If the key is a
// boundary, it returns the two partitions beside it.
func partitionsAt(v *store.View, ks keys.KeyspaceID, key []byte) (left, right *clusterpb.Partition,
	err error) {
	for p, err := range meta.All[clusterpb.Partition](v, meta.PartitionsOf(ks)) {
		if err != nil {
			return nil, nil, err
		}
		switch span := keys.PartitionSpan(p); {
		case bytes.Equal(span.Start, key):
			right = p
		case span.Contains(key), bytes.Equal(span.End, key):
			left = p
		}
	}
	return left, right, nil
}
