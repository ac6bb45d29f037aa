package admin

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// RecoveredPartition is a partition that goes on from one replica after the loss of a majority.
type RecoveredPartition struct {
	Partition uint64
	Keyspace  uint32
	// Node has the replica, and Replica is its id from then on.
	Node, Replica uint64
	// Membership is what the partition has from then on, KnownMembership the highest that was known
	// when the plan was made.
	Membership, KnownMembership uint64
}

// Recovered is how far a recovery is: how many partitions the cluster has as the plan says, how
// many have not reported yet, and how many were dropped.
type Recovered struct {
	Recovered, Waiting, Dropped uint64
}

// ConfirmRecovery tells the cluster of a plan by which partitions go on that had lost their
// majority for good (tidemark recover). The lost nodes are refused from then on. It may be
// repeated, and says how far the recovery is.
func (c *Client) ConfirmRecovery(ctx context.Context, plan string, lost []uint64,
	partitions []RecoveredPartition) (Recovered, error) {
	request := &clusterpb.ConfirmRecoveryRequest{Plan: plan, LostNodes: lost}
	for _, p := range partitions {
		request.Partitions = append(request.Partitions, &clusterpb.RecoveredPartition{
			Partition: p.Partition, Keyspace: p.Keyspace, Node: p.Node, Replica: p.Replica,
			Membership: p.Membership, KnownMembership: p.KnownMembership})
	}
	r, err := ask(ctx, c, "confirm a recovery", "", clusterpb.ClusterClient.ConfirmRecovery, request)
	return Recovered{r.GetRecovered(), r.GetWaiting(), r.GetDropped()}, err
}
