package admin

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// NodeStatus is what is wanted of a data node. It does not say whether the node answers.
type NodeStatus string

// What is wanted of a node.
const (
	// NodeActive holds replicas and leads.
	NodeActive NodeStatus = "active"
	// NodeDraining keeps its replicas, leads nothing, and is given nothing new.
	NodeDraining NodeStatus = "draining"
	// NodeDecommissioning gives its replicas up, to other nodes.
	NodeDecommissioning NodeStatus = "decommissioning"
	// NodeGone holds nothing, and its id is refused for good: its directory can be deleted.
	NodeGone NodeStatus = "gone"
)

var nodeStatuses = map[NodeStatus]clusterpb.NodeStatus{
	NodeActive: clusterpb.NodeStatus_NODE_ACTIVE, NodeDraining: clusterpb.NodeStatus_NODE_DRAINING,
	NodeDecommissioning: clusterpb.NodeStatus_NODE_MOVING, NodeGone: clusterpb.NodeStatus_NODE_GONE,
}

func nodeStatusOf(s clusterpb.NodeStatus) NodeStatus {
	for name, value := range nodeStatuses {
		if value == s {
			return name
		}
	}
	return NodeStatus(fmt.Sprint(int32(s)))
}

// NodeProgress is how far a node is on its way to its status.
type NodeProgress struct {
	// Before is the status before the call, Status the one now.
	Before, Status NodeStatus
	// Obstacles are what is in the way, in words.
	Obstacles []string
	// Replicas, Leaders and Bytes are what the node holds and leads; ReplicasLeft, LeadersLeft and
	// BytesLeft what of that is still to go. What only this node can lead is not left to go when it
	// is drained.
	Replicas, Leaders, ReplicasLeft, LeadersLeft int
	Bytes, BytesLeft                             uint64
	// InTheWay is the first thing that keeps some of it, in words; empty: nothing is known.
	InTheWay string
}

// SetNodeStatus has a node drained (NodeDraining) or decommissioned (NodeDecommissioning), or takes
// that back (NodeActive), and says how far that is. It returns when the change is recorded; calling
// it again changes nothing and tells how it goes on. A decommissioning ends with NodeGone. One that
// the other nodes have no place for is refused with the reason, and changes nothing.
func (c *Client) SetNodeStatus(ctx context.Context, node uint64, want NodeStatus) (NodeProgress,
	error) {
	return c.nodeStatus(ctx, node, want, false)
}

// CheckNodeStatus says what SetNodeStatus would find, and changes nothing.
func (c *Client) CheckNodeStatus(ctx context.Context, node uint64, want NodeStatus) (NodeProgress,
	error) {
	return c.nodeStatus(ctx, node, want, true)
}

func (c *Client) nodeStatus(ctx context.Context, node uint64, want NodeStatus, dry bool) (
	NodeProgress, error) {
	op := fmt.Sprintf("set the status of node %d", node)
	status, known := nodeStatuses[want]
	if !known || want == NodeGone {
		return NodeProgress{}, invalid(op, "", "a node is made active, draining or "+
			"decommissioning, not %q", string(want))
	}
	r, err := ask(ctx, c, op, "", clusterpb.ClusterClient.SetNodeStatus,
		&clusterpb.SetNodeStatusRequest{Node: node, Status: status, DryRun: dry})
	if err != nil {
		return NodeProgress{}, err
	}
	return NodeProgress{Before: nodeStatusOf(r.Before), Status: nodeStatusOf(r.Status),
		Obstacles: r.Obstacles, Replicas: int(r.Replicas), Leaders: int(r.Leaders),
		ReplicasLeft: int(r.ReplicasLeft), LeadersLeft: int(r.LeadersLeft), Bytes: r.Bytes,
		BytesLeft: r.BytesLeft, InTheWay: r.InTheWay}, nil
}
