package steps

import "github.com/tidemarkdb/tidemark/rpc/clusterpb"

// Rank says how well a node can take over the lead of a partition.
type Rank int

const (
	// Silent: the node does not answer.
	Silent Rank = iota
	// LeadsNothing: its disk is full or its clock is wrong. It refuses leadership, or serves
	// nothing.
	LeadsNothing
	// LeadsBadly: the node is on its way out, or its disk is slow. It leads if no other node can.
	LeadsBadly
	// LeadsWell: nothing is known against it.
	LeadsWell
)

// RankNode ranks a node by its record, nil if there is none, and by its own report, nil if there is
// none.
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
