package driver

import (
	"context"
	"slices"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// Whole reports whether every partition has the replicas that its keyspace wants, all of them
// voters on living nodes. Nodes in lost count as dead, even while the core still waits for them.
func Whole(ctx context.Context, client *kv.Client, lost ...uint64) (bool, error) {
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return false, err
	}
	alive := make(map[uint64]bool, len(nodes))
	for _, n := range nodes {
		alive[n.ID] = n.Alive && !slices.Contains(lost, n.ID)
	}
	keyspaces, err := admin.New(client).Keyspaces(ctx)
	if err != nil {
		return false, err
	}
	wanted := make(map[string]int, len(keyspaces))
	for _, k := range keyspaces {
		wanted[k.Name] = k.Replicas
	}
	partitions, err := admin.New(client).Partitions(ctx, "")
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(partitions, func(p admin.PartitionInfo) bool {
		return len(p.Replicas) != wanted[p.Keyspace] ||
			slices.ContainsFunc(p.Replicas, func(r admin.ReplicaInfo) bool {
				return r.Learner || !alive[r.Node]
			})
	}), nil
}
