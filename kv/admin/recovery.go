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
	// Membership is the partition's membership from then on, KnownMembership the highest membership
	// known when the plan was made.
	Membership, KnownMembership uint64
}

// Recovered is the progress of a recovery: the numbers of partitions that are as the plan says,
// that have not reported yet, and that were dropped.
type Recovered struct {
	Recovered, Waiting, Dropped uint64
}

// ConfirmRecovery tells the cluster of a plan by which partitions that have lost their majority for
// good go on (tidemark recover). From then on the lost nodes are refused. The call may be repeated,
// and returns the progress of the recovery.
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
