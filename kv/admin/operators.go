package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
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

// Operators lists the changes of replicas and leaders, the splits and the merges that are under
// way.
func (c *Client) Operators(ctx context.Context) ([]OperatorInfo, error) {
	r, err := ask(ctx, c, "list operators", "", clusterpb.ClusterClient.ListOperators,
		&clusterpb.ListOperatorsRequest{})
	var all []OperatorInfo
	for _, o := range r.GetOperators() {
		all = append(all, OperatorInfo{ID: o.Operator, Partition: o.Partition, Keyspace: o.Keyspace,
			Kind: o.Kind, Leader: o.LeadNode, Bytes: o.Bytes, To: o.ToNode, From: o.FromNode,
			Reason: o.Reason, Step: o.Step, WaitsFor: o.WaitsFor, Child: o.Child,
			SplitAt: o.SplitAt, SplitAtHidden: o.SplitAtHidden, Right: o.Right,
			Began: time.UnixMilli(o.CreatedUnixMs), Cancelled: o.Cancelled,
			Age: ago(o.CreatedUnixMs, r.NowUnixMs)})
	}
	return all, err
}

// MoveReplica begins to move a partition's replica from one node to another: it is copied, then it
// votes in place of the old one, which is removed. Reads and writes go on. It returns when the move
// is recorded; Operators shows how it goes on, also when the cluster's core has another leader.
func (c *Client) MoveReplica(ctx context.Context, partition, from, to uint64) error {
	_, err := ask(ctx, c, fmt.Sprintf("move a replica of partition %d", partition), "",
		clusterpb.ClusterClient.MoveReplica,
		&clusterpb.MoveReplicaRequest{Partition: partition, FromNode: from, ToNode: to})
	return err
}

// TransferLeader has the replica of a partition on a node lead it, now and from now on. It returns
// when that is recorded; Operators shows how it goes on.
func (c *Client) TransferLeader(ctx context.Context, partition, to uint64) error {
	_, err := ask(ctx, c, fmt.Sprintf("transfer the lead of partition %d", partition), "",
		clusterpb.ClusterClient.TransferLeader,
		&clusterpb.TransferLeaderRequest{Partition: partition, ToNode: to})
	return err
}

// CancelOperator takes back what is under way in a partition. A replica that was added is removed
// again, unless the one in whose place it comes is on its way out: then that is completed, as is a
// split or merge that was carried out. A merge is taken back by either of its two partitions.
func (c *Client) CancelOperator(ctx context.Context, partition uint64) error {
	_, err := ask(ctx, c, fmt.Sprintf("cancel what is under way in partition %d", partition), "",
		clusterpb.ClusterClient.CancelOperator, &clusterpb.CancelOperatorRequest{Partition: partition})
	return err
}

// Split is a split of a partition that was asked for.
type Split struct {
	// Operator is what Operators lists; 0 if there is a boundary already.
	Operator uint64
	// Partition is the one that splits, and keeps what is to the left; Child begins at the key.
	Partition, Child uint64
}

// SplitPartition begins to split the partition of a keyspace that has a key: one that begins with
// the key comes to its right. In a hash keyspace only the partition splits that the key belongs to.
// Reads and writes go on. It returns when the split is recorded; Operators shows how it goes on,
// also when the cluster's core has another leader. It may be repeated.
func (c *Client) SplitPartition(ctx context.Context, keyspace string, key []byte) (Split, error) {
	const op = "split a partition"
	if err := keys.ValidateUserKey(key); err != nil {
		return Split{}, invalid(op, keyspace, "%v", err)
	}
	r, err := ask(ctx, c, op, keyspace, clusterpb.ClusterClient.SplitPartition,
		&clusterpb.SplitPartitionRequest{Keyspace: keyspace, Key: key})
	return Split{r.GetOperator(), r.GetPartition(), r.GetChild()}, err
}

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
	r, err := ask(ctx, c, fmt.Sprintf("merge partition %d", partition), "",
		clusterpb.ClusterClient.MergePartition,
		&clusterpb.MergePartitionRequest{Partition: partition})
	return Merge{r.GetOperator(), r.GetPartition(), r.GetRight()}, err
}
