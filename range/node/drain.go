package node

import (
	"context"

	"github.com/tidemarkdb/tidemark/range/host"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Drain hands over all that this node leads, while it goes on serving, and returns how many
// leaderships are left: see host.Host.Drain. Close may follow.
func (n *Node) Drain(ctx context.Context) (left int) {
	return n.host.Drain(ctx, func(g *host.Group, term uint64, to keys.ReplicaID) {
		h := n.replicas.get(g.ID())
		if h == nil {
			return
		}
		n.metrics.transfers.Inc()
		if n.health.fit() {
			h.replica.TransferLeader(to)
		} else {
			g.Resign(term, to) // as in abdicate
		}
	})
}
