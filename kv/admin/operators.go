package admin

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// OperatorInfo is an operator under way: a change of a partition's replicas or leader, a split or a
// merge.
type OperatorInfo struct {
	ID, Partition uint64
	Keyspace      string
	// Kind is one of "replace replica", "add replica", "remove replica", "transfer leader", "finish
	// change", "split" and "merge".
	Kind string
	// To is the node that gets a replica, From the node that loses its replica, and Leader the node
	// that leads at the end; 0: none, or no change.
	To, From, Leader uint64
	// Bytes is the largest number of bytes that the operator may copy.
	Bytes uint64
	// Reason, Step and WaitsFor are texts: why the operator was made, its next step, and what that
	// step waits for.
	Reason, Step, WaitsFor string
	Began                  time.Time
	// Age is the time since Began, by the cluster's clock.
	Age time.Duration
	// Child is the partition that a split makes, which begins at the key SplitAt; 0 for other
	// kinds.
	Child   uint64
	SplitAt []byte
	// SplitAtHidden: the operator has a split key, and this client may not see it.
	SplitAtHidden bool
	// Right is the right neighbour that a merge makes part of the partition; 0 for other kinds.
	Right uint64
	// Cancelled: the operator is being undone.
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

// MoveReplica begins to move a partition's replica from one node to another: the replica is copied,
// then the copy votes in place of the old replica, which is removed. Reads and writes go on.
// MoveReplica returns when the move is recorded; Operators shows its progress, also after the
// core's leader has changed.
func (c *Client) MoveReplica(ctx context.Context, partition, from, to uint64) error {
	_, err := ask(ctx, c, fmt.Sprintf("move a replica of partition %d", partition), "",
		clusterpb.ClusterClient.MoveReplica,
		&clusterpb.MoveReplicaRequest{Partition: partition, FromNode: from, ToNode: to})
	return err
}

// TransferLeader makes the replica on a node lead the partition, now and permanently. It returns
// when that is recorded; Operators shows the progress.
func (c *Client) TransferLeader(ctx context.Context, partition, to uint64) error {
	_, err := ask(ctx, c, fmt.Sprintf("transfer the lead of partition %d", partition), "",
		clusterpb.ClusterClient.TransferLeader,
		&clusterpb.TransferLeaderRequest{Partition: partition, ToNode: to})
	return err
}

// CancelOperator undoes the operator of a partition. A replica that was added is removed again. If
// the replica that it replaces is already being removed, the change is completed instead. A split
// or merge that was carried out is completed too. A merge can be cancelled through either of its
// two partitions.
func (c *Client) CancelOperator(ctx context.Context, partition uint64) error {
	_, err := ask(ctx, c, fmt.Sprintf("cancel what is under way in partition %d", partition), "",
		clusterpb.ClusterClient.CancelOperator, &clusterpb.CancelOperatorRequest{Partition: partition})
	return err
}

// Split describes a requested split of a partition.
type Split struct {
	// Operator is the id of the operator in Operators; 0 if the boundary exists already.
	Operator uint64
	// Partition is the partition that splits and keeps the keys below the split key; Child begins
	// at that key.
	Partition, Child uint64
}

// SplitPartition begins to split the partition that holds a key: a new partition begins at the key.
// In a hash keyspace only the partition that holds the key splits. Reads and writes go on.
// SplitPartition returns when the split is recorded; Operators shows its progress, also after the
// core's leader has changed. The call may be repeated.
func (c *Client) SplitPartition(ctx context.Context, keyspace string, key []byte) (Split, error) {
	const op = "split a partition"
	if err := keys.ValidateUserKey(key); err != nil {
		return Split{}, invalid(op, keyspace, "%v", err)
	}
	r, err := ask(ctx, c, op, keyspace, clusterpb.ClusterClient.SplitPartition,
		&clusterpb.SplitPartitionRequest{Keyspace: keyspace, Key: key})
	return Split{r.GetOperator(), r.GetPartition(), r.GetChild()}, err
}

// Merge describes a requested merge of two partitions.
type Merge struct {
	// Operator is the id of the operator in Operators.
	Operator uint64
	// Partition is the partition that stays; its right neighbour Right becomes part of it.
	Partition, Right uint64
}

// MergePartition begins to merge a partition with its right neighbour, whatever their sizes and
// loads, and even if a user asked for the boundary between them. If their replicas are on different
// nodes, the replicas of the smaller partition are moved first. Reads and writes continue, except
// for a short pause of the right partition. MergePartition returns when the merge is recorded.
// Operators shows its progress, even after a change of the core's leader. The call may be repeated
// while the merge is under way.
func (c *Client) MergePartition(ctx context.Context, partition uint64) (Merge, error) {
	r, err := ask(ctx, c, fmt.Sprintf("merge partition %d", partition), "",
		clusterpb.ClusterClient.MergePartition,
		&clusterpb.MergePartitionRequest{Partition: partition})
	return Merge{r.GetOperator(), r.GetPartition(), r.GetRight()}, err
}
