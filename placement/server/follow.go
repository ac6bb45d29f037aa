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

// followTries is how often in a row descriptors are written whose records have changed meanwhile.
const followTries = 3

// followed is a descriptor that is to be written in place of a record, together with the partitions
// that have split off from it, and without those that were consumed.
type followed struct {
	descriptor *clusterpb.Partition
	key        []byte
	revision   uint64
	// pieces are new, and gone go; keyspace is then the record of their keyspace as it was.
	pieces   []*clusterpb.Partition
	gone     []tabled
	keyspace meta.Keyspace
}

func (f *followed) partitions() int { return 1 + len(f.pieces) + len(f.gone) }

// reshapes says whether other partitions come or go with it.
func (f *followed) reshapes() bool { return len(f.pieces)+len(f.gone) > 0 }

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
				return false, errors.Join(errs...) // another member leads, and follows
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

// writes are the conditions and the operations of one transaction. Partitions split off, and go,
// only while their keyspace is as it was: one that is dropped has its partitions removed once.
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

// written takes note of what was written.
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

// toFollow compares what was reported with the table.
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
			// What it split off from may not have been reported yet. One that was consumed fills no gap:
			// its generation is below that of what consumed it.
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

// withoutGone leaves out the descriptors of partitions that go with others.
func withoutGone(due, changed []followed) []followed {
	gone := map[string]bool{}
	for _, f := range changed {
		for _, g := range f.gone {
			gone[string(g.key)] = true
		}
	}
	return slices.DeleteFunc(due, func(f followed) bool { return gone[string(f.key)] })
}

// refuseReport forgets a descriptor that cannot be.
func (s *Server) refuseReport(d *clusterpb.Partition, why error) {
	s.reports.Refuse(d)
	s.config.Logger.Error("the leader of a partition reports a descriptor that cannot be",
		"partition", keys.PartitionID(d.Id), "error", why)
}
