package keyspaces

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner/assign"
	"github.com/tidemarkdb/tidemark/placement/server/consumer"
	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Step takes keyspaces from CREATING to ACTIVE and from DROPPING to removed. It reads its next step
// from the store, so it can be interrupted at any time.
func (k *Keyspaces) Step(ctx context.Context, all []meta.Keyspace) error {
	var errs []error
	for _, ks := range all {
		var err error
		switch ks.State {
		case clusterpb.KeyspaceState_CREATING:
			err = k.create(ctx, ks)
		case clusterpb.KeyspaceState_DROPPING:
			err = k.drop(ctx, ks)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("keyspace %s: %w", ks.Name, err))
		}
	}
	return errors.Join(errs...)
}

// create assigns replicas to the partitions that have none, and makes the keyspace ACTIVE when all
// partitions have replicas. It does nothing while there are not enough nodes.
func (k *Keyspaces) create(ctx context.Context, ks meta.Keyspace) error {
	v := k.config.Store.Stale()
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return err
	}
	candidates := facts.Nodes(nodes)
	spec, err := facts.Spec(ks.Keyspace)
	if err != nil {
		return err
	}
	if waits := spec.Waits(candidates); waits != "" {
		k.config.Logger.Info("keyspace waits", "keyspace", ks.Name, "for", waits)
		return nil
	}
	creation := &serverpb.Creation{}
	revision, err := meta.Load(v, meta.CreationKey(ks.ID()), creation)
	if err != nil {
		return err
	}
	if revision == 0 {
		return nil // the keyspace was finished or dropped since the caller looked
	}
	placed, missing, err := placements(v, ks.ID(), creation)
	if err != nil {
		return err
	}
	spec.Partitions = len(missing)
	plan, err := assign.Place(candidates, spec, placed)
	if err != nil {
		return err
	}
	condition := []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision)}
	for from := 0; from < len(missing); from += meta.Chunk {
		var ops []*storepb.Op
		used := map[keys.NodeID]bool{}
		for i := from; i < min(from+meta.Chunk, len(missing)); i++ {
			for _, node := range plan.Placements[i].Nodes {
				used[node] = true
			}
			p := describe(ks.Keyspace, creation, missing[i], plan.Placements[i].Nodes)
			if err := keys.ValidatePartition(p); err != nil {
				return fmt.Errorf("INVARIANT: a new partition is sound: %w", err)
			}
			ops = append(ops, store.Put(meta.PartitionKey(ks.ID(), keys.PartitionID(p.Id)), meta.Encode(p)))
		}
		// A node that is decommissioned meanwhile must not be named by a later write.
		conditions := slices.Clone(condition)
		for _, node := range slices.Sorted(maps.Keys(used)) {
			unchanged, _, err := meta.UnchangedNode(v, node)
			if err != nil {
				return err
			}
			conditions = append(conditions, unchanged)
		}
		ok, err := k.meta.Commit(ctx, conditions, ops...)
		if err != nil {
			return err
		}
		if !ok {
			now, err := meta.LoadKeyspace(k.config.Store.Stale(), ks.ID())
			if err == nil && now.Revision == ks.Revision {
				err = meta.Conflict("nodes")
			}
			return err // the keyspace is being dropped
		}
	}
	if len(missing) > 0 {
		k.config.Logger.Info("partitions assigned", "keyspace", ks.Name, "plan", plan.Summary(),
			"first", plan.Placements[0].Reason.String())
	}
	ks.State = clusterpb.KeyspaceState_ACTIVE
	ok, err := k.meta.Commit(ctx, condition,
		store.Put(meta.KeyspaceKey(ks.ID()), meta.Encode(ks.Keyspace)),
		store.Delete(meta.CreationKey(ks.ID())))
	if ok {
		k.config.Logger.Info("keyspace is active", "keyspace", ks.Name, "id", ks.ID())
	}
	return err
}

// placements returns the placement of all partitions, and the numbers of the partitions that a
// creation still has to place.
func placements(
	v *store.View, ks keys.KeyspaceID, c *serverpb.Creation,
) (placed []assign.Placed, missing []uint64, err error) {
	there := make([]bool, c.Partitions)
	for p, err := range meta.All[clusterpb.Partition](v, []byte(meta.PartitionPrefix)) {
		if err != nil {
			return nil, nil, err
		}
		one := assign.Placed{Keyspace: keys.KeyspaceID(p.Keyspace)}
		for _, r := range p.Replicas {
			one.Nodes = append(one.Nodes, keys.NodeID(r.Node))
		}
		placed = append(placed, one)
		if one.Keyspace == ks && p.Id >= c.FirstPartition && p.Id-c.FirstPartition < c.Partitions {
			there[p.Id-c.FirstPartition] = true
		}
	}
	for i, is := range there {
		if !is {
			missing = append(missing, uint64(i))
		}
	}
	return placed, missing, nil
}

// describe makes the descriptor of a new partition.
func describe(
	ks *clusterpb.Keyspace, c *serverpb.Creation, number uint64, nodes []keys.NodeID,
) *clusterpb.Partition {
	p := &clusterpb.Partition{Id: c.FirstPartition + number, Keyspace: ks.Id,
		Generation: 1, Membership: 1}
	if ks.Partitioning == clusterpb.Partitioning_HASH {
		p.Hash, p.PrefixLength = uint32(number), keys.HashPrefixLength
		p.Start = keys.HashPrefix(keys.KeyspaceID(ks.Id), uint16(number))
		p.End = keys.PrefixEnd(p.Start)
	} else {
		prefix := keys.KeyspacePrefix(keys.KeyspaceID(ks.Id))
		p.PrefixLength = keys.KeyspacePrefixLength
		p.Start, p.End = prefix, keys.PrefixEnd(prefix)
		if number > 0 {
			p.Start = append(prefix[:len(prefix):len(prefix)], c.SplitAt[number-1]...)
		}
		if number < uint64(len(c.SplitAt)) {
			p.End = append(prefix[:len(prefix):len(prefix)], c.SplitAt[number]...)
		}
	}
	for i, node := range nodes {
		p.Replicas = append(p.Replicas, &clusterpb.Replica{Node: uint64(node),
			Replica: uint64(i + 1), Role: clusterpb.ReplicaRole_VOTER})
	}
	return p
}

// drop removes the consumers of a keyspace, its partitions from the table, and then the keyspace.
func (k *Keyspaces) drop(ctx context.Context, ks meta.Keyspace) error {
	condition := []*storepb.Compare{store.ModifiedAt(meta.KeyspaceKey(ks.ID()), ks.Revision)}
	consumers, last := store.PrefixRange(consumer.Prefix(ks.ID()))
	if ok, err := k.meta.Commit(ctx, condition, &storepb.Op{Op: &storepb.Op_DeleteRange{
		DeleteRange: &storepb.DeleteRange{Key: consumers, RangeEnd: last}}}); err != nil || !ok {
		return err
	}
	start, end := store.PrefixRange(meta.PartitionsOf(ks.ID()))
	for {
		page, err := k.config.Store.Stale().Range(&storepb.Range{Key: start, RangeEnd: end,
			Limit: meta.Chunk, KeysOnly: true})
		if err != nil {
			return err
		}
		if len(page.Kvs) == 0 {
			break
		}
		var ops []*storepb.Op
		var ids []keys.PartitionID
		for _, kv := range page.Kvs {
			id, err := meta.LastID(kv.Key, 16)
			if err != nil {
				return err
			}
			ids = append(ids, keys.PartitionID(id))
			ops = append(ops, store.Delete(kv.Key))
		}
		if ok, err := k.meta.Commit(ctx, condition, ops...); err != nil || !ok {
			return err
		}
		k.config.Forget(ids)
	}
	ok, err := k.meta.Commit(ctx, condition, store.Delete(meta.KeyspaceKey(ks.ID())))
	if ok {
		k.config.Logger.Info("keyspace is gone", "keyspace", ks.Name, "id", ks.ID())
	}
	return err
}
