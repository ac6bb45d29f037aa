package sim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/kv/admin"
)

// checkAlive waits until the core regards every running node as alive. When the cluster is whole
// again, nothing that happened while a node returned may prevent that.
func (w *World) checkAlive(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking for nodes that are alive: %v", err)
		return
	}
	defer client.Close()
	var silent []string
	for ctx.Err() == nil {
		var nodes []admin.NodeInfo
		if nodes, err = admin.New(client).Nodes(ctx); err == nil {
			if silent = w.takenForDead(nodes); len(silent) == 0 {
				return
			}
		}
		sleep(ctx, 500*time.Millisecond)
	}
	w.Violation("the cluster is whole again, and nodes that run are taken for dead: %s, %v",
		strings.Join(silent, ", "), err)
}

// takenForDead lists the running nodes that the core does not regard as alive.
func (w *World) takenForDead(nodes []admin.NodeInfo) (silent []string) {
	for i := range w.Cluster.Servers() {
		p := w.Cluster.Process(i)
		if p == nil || p.NodeID() == 0 || isRetired(p.Err()) {
			continue
		}
		at := slices.IndexFunc(nodes, func(n admin.NodeInfo) bool { return n.ID == p.NodeID() })
		if at >= 0 && !nodes[at].Alive && nodes[at].Status != admin.NodeGone {
			silent = append(silent, fmt.Sprintf("node %d of server %d", p.NodeID(), i))
		}
	}
	return silent
}
