package operators

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Find returns a partition of any keyspace, or nil if there is none. Partitions are stored by
// keyspace. The scheduler knows the keyspace of each partition from the table. Only if the
// scheduler has not seen a partition are all records searched.
func (s *Operators) Find(v *store.View, id keys.PartitionID) (*clusterpb.Partition, error) {
	if ks, known := s.config.Table.Keyspace(id); known {
		if p, _, err := meta.LoadPartition(v, ks, id); p != nil || err != nil {
			return p, err
		}
	}
	for kv, err := range v.All([]byte(meta.PartitionPrefix)) {
		if err != nil {
			return nil, err
		}
		found, err := meta.LastID(kv.Key, 16)
		if err != nil {
			return nil, err
		}
		if keys.PartitionID(found) == id {
			return meta.DecodePartition(kv.Key, kv.Value)
		}
	}
	return nil, nil
}

// underWay returns the operator of a partition if it is the requested one, and nil otherwise. So a
// request that is sent twice gets the same answer twice.
func underWay(v *store.View, partition uint64, same func(*serverpb.Operator) bool,
) (*serverpb.Operator, error) {
	o := &serverpb.Operator{}
	revision, err := meta.Load(v, meta.OperatorKey(keys.PartitionID(partition)), o)
	if err != nil || revision == 0 || o.Cancelled || !same(o) {
		return nil, err
	}
	return o, nil
}

// toChange returns the newest descriptor of a partition that should be changed, or an error if the
// partition cannot be changed.
func (s *Operators) toChange(v *store.View, partition uint64) (*clusterpb.Partition, error) {
	id := keys.PartitionID(partition)
	d, err := s.Find(v, id)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return nil, status.Errorf(codes.NotFound, "there is no partition %d", partition)
	}
	ks, err := meta.LoadKeyspace(v, keys.KeyspaceID(d.Keyspace))
	if err != nil {
		return nil, err
	}
	operators, err := meta.LoadOperators(v)
	if err != nil {
		return nil, err
	}
	switch {
	case ks.Keyspace == nil || ks.State != clusterpb.KeyspaceState_ACTIVE:
		return nil, status.Errorf(codes.FailedPrecondition,
			"the keyspace of partition %d is being created or dropped", partition)
	case operators[id] != nil:
		return nil, status.Errorf(codes.FailedPrecondition, "operator %d changes partition %d "+
			"already; wait for it, or cancel it", operators[id].Id, partition)
	case holder(operators, partition) != nil:
		o := holder(operators, partition)
		return nil, status.Errorf(codes.FailedPrecondition, "operator %d merges partition %d with "+
			"partition %d; wait for it, or cancel it", o.Id, o.Partition, partition)
	case len(operators) >= Max:
		return nil, status.Errorf(codes.ResourceExhausted,
			"%d operators are under way, and no more are taken", len(operators))
	}
	return s.reports.Newest(id, d), nil
}

// holder returns the operator that merges a partition with its left neighbour, or nil.
func holder(operators map[keys.PartitionID]*serverpb.Operator, right uint64) *serverpb.Operator {
	for _, o := range operators {
		if steps.Merges(o) && o.Right == right {
			return o
		}
	}
	return nil
}
