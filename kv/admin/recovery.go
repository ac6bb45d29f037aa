package admin

import (
	"context"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// RecoveredPartition is a partition that continues from one replica after the loss of its majority.
type RecoveredPartition struct {
	Partition uint64
	Keyspace  uint32
	// Node has the replica. Replica is the replica's new id.
	Node, Replica uint64
	// Membership is the partition's new membership. KnownMembership is the highest membership that was
	// known when the plan was made.
	Membership, KnownMembership uint64
}

// Recovered is the progress of a recovery: the numbers of partitions that are as the plan says,
// that have not reported yet, and that were dropped.
type Recovered struct {
	Recovered, Waiting, Dropped uint64
}

// ConfirmRecovery tells the cluster of a plan for the recovery of partitions that have permanently
// lost their majority (tidemark recover). From then on the lost nodes are refused. The call may be
// repeated, and returns the progress of the recovery.
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
