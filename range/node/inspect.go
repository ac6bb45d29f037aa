package node

import (
	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica"
)

// Inspect calls visit for every replica that this node holds, for debugging and tests.
func (n *Node) Inspect(visit func(id keys.PartitionID, r *replica.Replica, g *host.Group)) {
	for id, h := range n.replicas.all() {
		visit(id, h.replica, h.group)
	}
}
