package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// OperatorInfo is a change of a partition's replicas or leader, or a split or merge of it, that is
// under way.
type OperatorInfo struct {
	ID, Partition uint64
	Keyspace      string
	// Kind is what it does: "replace replica", "add replica", "remove replica", "transfer leader",
	// "finish change", "split" or "merge".
	Kind string
	// To is the node that gets a replica, From the one that gives its own up, and Leader the one that
	// leads at the end; 0: none does, or that stays.
	To, From, Leader uint64
	// Bytes is what is sent at most.
	Bytes uint64
	// Reason is why, Step what is done next, and WaitsFor what that waits for, in words.
	Reason, Step, WaitsFor string
	Began                  time.Time
	// Age is how long ago that was, by the cluster's clock.
	Age time.Duration
	// Child is the partition that splits off, and begins at the key SplitAt; 0: none does.
	Child   uint64
	SplitAt []byte
	// SplitAtHidden says that there is such a key, which this client may not see.
	SplitAtHidden bool
	// Right is the right neighbour that becomes part of the partition; 0: none does.
	Right uint64
	// Cancelled: it is being taken back.
	Cancelled bool
}

// MoveReplica begins to move a partition's replica from one node to another: it is copied, then it
// votes in place of the old one, which is removed. Reads and writes go on. It returns when the move
// is recorded; Operators shows how it goes on, also when the cluster's core has another leader.
func (c *Client) MoveReplica(ctx context.Context, partition, from, to uint64) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(fmt.Sprintf("move a replica of partition %d", partition), "",
		c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
			_, err := cluster.MoveReplica(ctx, &clusterpb.MoveReplicaRequest{Partition: partition,
				FromNode: from, ToNode: to})
			return err
		}))
}

// CancelOperator takes back what is under way in a partition. A replica that was added is removed
// again, unless the one in whose place it comes is on its way out: then that is completed, as is a
// split or merge that was carried out. A merge is taken back by either of its two partitions.
func (c *Client) CancelOperator(ctx context.Context, partition uint64) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(fmt.Sprintf("cancel what is under way in partition %d", partition), "",
		c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
			_, err := cluster.CancelOperator(ctx, &clusterpb.CancelOperatorRequest{Partition: partition})
			return err
		}))
}

// Operators lists the changes of replicas and leaders, the splits and the merges that are under
// way.
func (c *Client) Operators(ctx context.Context) ([]OperatorInfo, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var all []OperatorInfo
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListOperators(ctx, &clusterpb.ListOperatorsRequest{})
		all = nil
		for _, o := range r.GetOperators() {
			all = append(all, OperatorInfo{ID: o.Operator, Partition: o.Partition, Keyspace: o.Keyspace,
				Kind: o.Kind, Leader: o.LeadNode, Bytes: o.Bytes, To: o.ToNode, From: o.FromNode,
				Reason: o.Reason, Step: o.Step, WaitsFor: o.WaitsFor, Child: o.Child, SplitAt: o.SplitAt,
				SplitAtHidden: o.SplitAtHidden,
				Right:         o.Right, Began: time.UnixMilli(o.CreatedUnixMs), Cancelled: o.Cancelled,
				Age: ago(o.CreatedUnixMs, r.NowUnixMs)})
		}
		return err
	})
	return all, wrapAdmin("list operators", "", err)
}

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
	ctx, cancel := c.bound(ctx)
	defer cancel()
	request := &clusterpb.ConfirmRecoveryRequest{Plan: plan, LostNodes: lost}
	for _, p := range partitions {
		request.Partitions = append(request.Partitions, &clusterpb.RecoveredPartition{
			Partition: p.Partition, Keyspace: p.Keyspace, Node: p.Node, Replica: p.Replica,
			Membership: p.Membership, KnownMembership: p.KnownMembership})
	}
	var out Recovered
	err := wrapAdmin("confirm a recovery", "",
		c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
			r, err := cluster.ConfirmRecovery(ctx, request)
			out = Recovered{r.GetRecovered(), r.GetWaiting(), r.GetDropped()}
			return err
		}))
	return out, err
}
