package server

import (
	"context"
	"errors"

	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// followTries is how often in a row descriptors are written whose records have changed meanwhile.
const followTries = 3

// followed is a descriptor that is to be written in place of a record.
type followed struct {
	descriptor *clusterpb.Partition
	key        []byte
	revision   uint64
}

// followReports puts into the table what the partitions' leaders say of them. A leader says what is
// applied, so it is true, and the highest epoch is the latest. Many go in one transaction; what one
// fails with does not hold up the others.
func (s *Server) followReports(ctx context.Context) error {
	var errs []error
	for range followTries {
		due, err := s.toFollow()
		conflict, failed := s.write(ctx, due)
		if err = errors.Join(err, failed); err != nil {
			errs = append(errs, err)
		}
		if !conflict || ctx.Err() != nil {
			break
		}
	}
	return errors.Join(errs...)
}

// write writes descriptors. conflict says that some of them were not, since records have changed
// meanwhile.
func (s *Server) write(ctx context.Context, due []followed) (conflict bool, err error) {
	var errs []error
	for len(due) > 0 && ctx.Err() == nil {
		some := due[:min(len(due), chunk)]
		due = due[len(some):]
		conditions, ops := make([]*storepb.Compare, len(some)), make([]*storepb.Op, len(some))
		for i, f := range some {
			conditions[i] = store.ModifiedAt(f.key, f.revision)
			ops[i] = store.Put(f.key, encode(f.descriptor))
		}
		ok, err := s.commit(ctx, conditions, ops...)
		if err != nil {
			errs = append(errs, err)
			if _, refused, _ := hintOf(err); refused {
				return false, errors.Join(errs...) // another member leads, and follows
			}
			continue
		}
		conflict = conflict || !ok
		if !ok {
			continue
		}
		s.metrics.changes.Add(float64(len(some)))
		for _, f := range some {
			s.config.Logger.Info("the replicas of a partition have changed", "partition",
				keys.PartitionID(f.descriptor.Id), "membership", f.descriptor.Membership, "replicas",
				nodesOf(f.descriptor))
			s.soft.inTable(f.descriptor)
		}
	}
	return conflict, errors.Join(errs...)
}

// toFollow compares what was reported with the table.
func (s *Server) toFollow() (due []followed, err error) {
	v := s.store.Stale()
	var errs []error
	for _, d := range s.soft.reported() {
		id := keys.PartitionID(d.Id)
		p, revision, err := loadPartition(v, keys.KeyspaceID(d.Keyspace), id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p == nil || !newer(d, p) {
			s.soft.inTable(d)
			continue
		}
		recovered, err := loadRecovery(v, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := plausible(d, p, recovered); err != nil {
			s.soft.refuse(d)
			s.config.Logger.Error("the leader of a partition reports a descriptor that cannot be",
				"partition", id, "error", err)
			continue
		}
		due = append(due, followed{d, partitionKey(keys.KeyspaceID(d.Keyspace), id), revision})
	}
	return due, errors.Join(errs...)
}
