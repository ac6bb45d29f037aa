package server

import (
	"context"
	"errors"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/server/hint"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// followTries is the number of attempts to write descriptors when their records change at the same
// time.
const followTries = 3

// followed is a descriptor that will replace a record. The same transaction adds the partitions
// that have split off from it, and removes the partitions that were merged into it.
type followed struct {
	descriptor *clusterpb.Partition
	key        []byte
	revision   uint64
	// pieces are the added partitions, and gone the removed ones. If there are any, keyspace is the
	// record of their keyspace as it was read.
	pieces   []*clusterpb.Partition
	gone     []tabled
	keyspace meta.Keyspace
}

func (f *followed) partitions() int { return 1 + len(f.pieces) + len(f.gone) }

// reshapes reports whether other partitions are added or removed together with the descriptor.
func (f *followed) reshapes() bool { return len(f.pieces)+len(f.gone) > 0 }

// followReports writes the descriptors that the partitions' leaders have reported into the table. A
// leader reports only descriptors that it has applied, so the descriptor with the highest epoch is
// the latest. One transaction has many descriptors. If the write of one descriptor fails, the
// others are still written.
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

// write writes descriptors. conflict is set if some of them were not written because records had
// changed meanwhile.
func (s *Server) write(ctx context.Context, due []followed) (conflict bool, err error) {
	var errs []error
	for len(due) > 0 && ctx.Err() == nil {
		n, partitions := 1, due[0].partitions()
		for n < len(due) && partitions+due[n].partitions() <= meta.Chunk {
			partitions += due[n].partitions()
			n++
		}
		some := due[:n]
		due = due[n:]
		conditions, ops := writes(some)
		ok, err := s.meta.Commit(ctx, conditions, ops...)
		if err != nil {
			errs = append(errs, err)
			if _, refused, _ := hint.Of(err); refused {
				return false, errors.Join(errs...) // another member leads now, and writes them
			}
			continue
		}
		conflict = conflict || !ok
		if ok {
			s.written(some)
		}
	}
	return conflict, errors.Join(errs...)
}

// writes returns the conditions and the operations of one transaction. Partitions are added and
// removed only if the record of their keyspace is unchanged. Otherwise a transaction could add
// partitions to a keyspace whose partitions are being removed by a drop.
func writes(some []followed) (conditions []*storepb.Compare, ops []*storepb.Op) {
	keyspaces := map[keys.KeyspaceID]bool{}
	for _, f := range some {
		conditions = append(conditions, store.ModifiedAt(f.key, f.revision))
		ops = append(ops, store.Put(f.key, meta.Encode(f.descriptor)))
		for _, p := range f.pieces {
			key := meta.PartitionKey(f.keyspace.ID(), keys.PartitionID(p.Id))
			conditions = append(conditions, store.Absent(key))
			ops = append(ops, store.Put(key, meta.Encode(p)))
		}
		for _, g := range f.gone {
			conditions = append(conditions, store.ModifiedAt(g.key, g.revision))
			ops = append(ops, store.Delete(g.key))
		}
		if f.reshapes() && !keyspaces[f.keyspace.ID()] {
			keyspaces[f.keyspace.ID()] = true
			conditions = append(conditions,
				store.ModifiedAt(meta.KeyspaceKey(f.keyspace.ID()), f.keyspace.Revision))
		}
	}
	return conditions, ops
}

// written processes descriptors that were written: it updates the reports, the log and the metrics.
func (s *Server) written(some []followed) {
	for _, f := range some {
		s.reports.InTable(f.descriptor)
		for _, p := range f.pieces {
			s.reports.InTable(p)
			s.config.Logger.Info("a partition has split", "partition", keys.PartitionID(f.descriptor.Id),
				"child", keys.PartitionID(p.Id), "of", keys.PartitionID(p.SplitFrom), "at",
				keys.Pretty(keys.UserKey(p, p.Start)))
		}
		var gone []keys.PartitionID
		for _, g := range f.gone {
			id := keys.PartitionID(g.descriptor.Id)
			gone = append(gone, id)
			s.config.Logger.Info("two partitions have merged", "partition",
				keys.PartitionID(f.descriptor.Id), "right", id, "at",
				keys.Pretty(keys.UserKey(g.descriptor, g.descriptor.Start)))
		}
		s.reports.Drop(gone)
		if f.reshapes() {
			continue
		}
		s.metrics.changes.Inc()
		s.config.Logger.Info("the replicas of a partition have changed", "partition",
			keys.PartitionID(f.descriptor.Id), "membership", f.descriptor.Membership, "replicas",
			meta.NodesText(f.descriptor))
	}
}

// toFollow compares the reported descriptors with the table, and returns the descriptors to write.
func (s *Server) toFollow() (due []followed, err error) {
	v := s.config.Store.Stale()
	var errs []error
	var changed []reshaped
	var orphans []*clusterpb.Partition
	for _, c := range s.reports.Claims() {
		d, id := c.Descriptor, keys.PartitionID(c.Descriptor.Id)
		p, revision, err := meta.LoadPartition(v, keys.KeyspaceID(d.Keyspace), id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if p == nil && d.SplitFrom != 0 && d.Frozen == nil && keys.ValidatePartition(d) == nil {
			// The partition that this one split off from may not have been reported yet. A descriptor of a
			// partition that was merged away cannot take its place: the partition that subsumed it has a
			// higher generation.
			orphans = append(orphans, d)
			continue
		}
		if p == nil || !reports.Newer(d, p) {
			s.reports.InTable(d)
			continue
		}
		recovered, err := meta.LoadRecovery(v, id)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if err := plausible(d, p, recovered); err != nil {
			s.refuseReport(d, err)
			continue
		}
		f := followed{descriptor: d, key: meta.PartitionKey(keys.KeyspaceID(d.Keyspace), id),
			revision: revision}
		switch {
		case !keys.PartitionSpan(d).Equal(keys.PartitionSpan(p)) || d.Generation != p.Generation:
			changed = append(changed, reshaped{f, p, c})
		default:
			due = append(due, f)
		}
	}
	some, err := s.followSpans(v, changed, orphans)
	return append(withoutGone(due, some), some...), errors.Join(append(errs, err)...)
}

// withoutGone removes descriptors of partitions that the changed descriptors remove from the table.
func withoutGone(due, changed []followed) []followed {
	gone := map[string]bool{}
	for _, f := range changed {
		for _, g := range f.gone {
			gone[string(g.key)] = true
		}
	}
	return slices.DeleteFunc(due, func(f followed) bool { return gone[string(f.key)] })
}

// refuseReport discards a reported descriptor that is not possible.
func (s *Server) refuseReport(d *clusterpb.Partition, why error) {
	s.reports.Refuse(d)
	s.config.Logger.Error("the leader of a partition reports an impossible descriptor",
		"partition", keys.PartitionID(d.Id), "error", why)
}
