package admin

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// NodeStatus is the wanted status of a data node. It does not say whether the node answers.
type NodeStatus string

// The values of NodeStatus.
const (
	// NodeActive: the node holds replicas and leads.
	NodeActive NodeStatus = "active"
	// NodeDraining: the node keeps its replicas, leads nothing, and gets no new replicas.
	NodeDraining NodeStatus = "draining"
	// NodeDecommissioning: the node's replicas are moved to other nodes.
	NodeDecommissioning NodeStatus = "decommissioning"
	// NodeGone: the node holds nothing, and its id is refused permanently. Its directory can be
	// deleted.
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

// NodeProgress is the progress of a node towards its wanted status.
type NodeProgress struct {
	// Before is the status before the call, Status the status after it.
	Before, Status NodeStatus
	// Obstacles are the reasons why the status cannot be reached, as sentences.
	Obstacles []string
	// Replicas, Leaders and Bytes are what the node holds and leads. ReplicasLeft, LeadersLeft and
	// BytesLeft are the part that must still move away. When a node is drained, leaderships that no
	// other node can take are not counted as left.
	Replicas, Leaders, ReplicasLeft, LeadersLeft int
	Bytes, BytesLeft                             uint64
	// InTheWay is the first obstacle to moving the rest away, as a sentence. It is empty if no
	// obstacle is known.
	InTheWay string
}

// SetNodeStatus drains a node (NodeDraining), decommissions it (NodeDecommissioning), or takes that
// back (NodeActive), and returns the progress. It returns when the change is recorded; a repeated
// call changes nothing and returns the present progress. A decommissioning ends with NodeGone. If
// the other nodes have no place for the replicas, a decommissioning is refused with the reason, and
// changes nothing.
func (c *Client) SetNodeStatus(ctx context.Context, node uint64, want NodeStatus) (NodeProgress,
	error) {
	return c.nodeStatus(ctx, node, want, false)
}

// CheckNodeStatus returns what SetNodeStatus would return, and changes nothing.
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
