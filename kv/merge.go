package kv

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Merge is a merge of two partitions that was asked for.
type Merge struct {
	// Operator is what Operators lists.
	Operator uint64
	// Partition is the one that stays; Right, its right neighbour, becomes part of it.
	Partition, Right uint64
}

// MergePartition begins to merge a partition with its right neighbour, whatever their sizes and
// loads, and whatever the boundary between them is for. If their replicas are on different nodes
// the smaller one is moved first. Reads and writes go on, but for a moment in the right one. It
// returns when the merge is recorded; Operators shows how it goes on, also when the cluster's core
// has another leader. It may be repeated while the merge is under way.
func (c *Client) MergePartition(ctx context.Context, partition uint64) (Merge, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var out Merge
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.MergePartition(ctx, &clusterpb.MergePartitionRequest{Partition: partition})
		out = Merge{r.GetOperator(), r.GetPartition(), r.GetRight()}
		return err
	})
	return out, wrapAdmin(fmt.Sprintf("merge partition %d", partition), "", err)
}
