package kv

import (
	"context"
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// OperatorInfo is a change of a partition's replicas or leader that is under way.
type OperatorInfo struct {
	ID, Partition uint64
	Keyspace      string
	// Kind is what it does: "replace replica", "add replica", "remove replica", "transfer leader" or
	// "finish change".
	Kind string
	// To is the node that gets a replica, From the one that gives its own up, and Leader the one that
	// leads at the end; 0: none does, or that stays.
	To, From, Leader uint64
	// Bytes is what is sent at most.
	Bytes uint64
	// Reason is why, Step what is done next, and WaitsFor what that waits for, in words.
	Reason, Step, WaitsFor string
	Began                  time.Time
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

// CancelOperator takes back what is under way in a partition. A replica that is being copied is
// removed again; one that has begun to vote stays.
func (c *Client) CancelOperator(ctx context.Context, partition uint64) error {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	return wrapAdmin(fmt.Sprintf("cancel what is under way in partition %d", partition), "",
		c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
			_, err := cluster.CancelOperator(ctx, &clusterpb.CancelOperatorRequest{Partition: partition})
			return err
		}))
}

// Operators lists the changes of replicas that are under way.
func (c *Client) Operators(ctx context.Context) ([]OperatorInfo, error) {
	ctx, cancel := c.bound(ctx)
	defer cancel()
	var all []OperatorInfo
	err := c.sender.Admin(ctx, func(ctx context.Context, cluster clusterpb.ClusterClient) error {
		r, err := cluster.ListOperators(ctx, &clusterpb.ListOperatorsRequest{})
		all = nil
		for _, o := range r.GetOperators() {
			all = append(all, OperatorInfo{ID: o.Operator, Partition: o.Partition, Keyspace: o.Keyspace,
				Kind: o.Kind, Leader: o.LeadNode, Bytes: o.Bytes, To: o.ToNode, From: o.FromNode, Reason: o.Reason, Step: o.Step, WaitsFor: o.WaitsFor,
				Began: time.UnixMilli(o.CreatedUnixMs), Cancelled: o.Cancelled})
		}
		return err
	})
	return all, wrapAdmin("list operators", "", err)
}
