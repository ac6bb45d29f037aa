package meta

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// StatusText returns the text for a node's status.
func StatusText(s clusterpb.NodeStatus) string {
	switch s {
	case clusterpb.NodeStatus_NODE_ACTIVE:
		return "active"
	case clusterpb.NodeStatus_NODE_DRAINING:
		return "draining"
	case clusterpb.NodeStatus_NODE_MOVING:
		return "being decommissioned"
	case clusterpb.NodeStatus_NODE_GONE:
		return "gone"
	}
	return s.String()
}

// NodesText lists the nodes of a partition's replicas.
func NodesText(d *clusterpb.Partition) string {
	text := "node"
	if len(d.Replicas) > 1 {
		text += "s"
	}
	for i, r := range d.Replicas {
		separator := ", "
		if i == 0 {
			separator = " "
		}
		text += fmt.Sprintf("%s%d", separator, r.Node)
	}
	return text
}
