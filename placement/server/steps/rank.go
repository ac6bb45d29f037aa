package steps

import "github.com/tidemarkdb/tidemark/rpc/clusterpb"

// Rank says how well a node can take over the leadership of a partition.
type Rank int

const (
	// Silent: the node does not answer.
	Silent Rank = iota
	// LeadsNothing: the node's disk is full or its clock is wrong. It refuses leadership, or serves
	// nothing.
	LeadsNothing
	// LeadsBadly: the node is being drained or decommissioned, or its disk is slow. It leads only if
	// no other node can.
	LeadsBadly
	// LeadsWell: the node has no known problem.
	LeadsWell
)

// RankNode ranks a node by its record and its own report. Each may be nil.
func RankNode(n *clusterpb.Node, alive bool, stats *clusterpb.NodeStats) Rank {
	switch {
	case !alive:
		return Silent
	case stats.GetDiskFull() || stats.GetClockUnhealthy():
		return LeadsNothing
	case stats.GetDiskSlow() || n.GetStatus() != clusterpb.NodeStatus_NODE_ACTIVE:
		return LeadsBadly
	}
	return LeadsWell
}
