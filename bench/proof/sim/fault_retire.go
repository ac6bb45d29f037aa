package sim

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// retire drains or decommissions the node of a server, while other faults happen. When a node has
// been decommissioned, its server loses its directory, and comes back as a new node. A member of
// the core is only drained: its directory has the core's data too.
type retire struct {
	// Server is a server number, modulo the number of servers.
	Server int `most:"1000"`
	Drain  bool
	// Undo is the time until the node is made active again; 0: not before the schedule is over.
	Undo time.Duration
}

var _ = register("retire", 10, 0, func(d *Dice) retire {
	r := retire{Server: d.IntN(d.Servers), Drain: d.IntN(4) == 0}
	if d.IntN(3) == 0 {
		r.Undo = d.Between(50*time.Millisecond, 20*time.Second)
	}
	return r
})

// Begin implements Effect. A goroutine calls the core, because the core may be cut off.
func (f retire) Begin(w *World) (string, func() string) {
	server := f.Server % w.Cluster.Servers()
	want := admin.NodeDecommissioning
	if f.Drain || server < w.cores || w.members {
		want = admin.NodeDraining
	}
	w.background(func(done <-chan struct{}) {
		client, err := w.Cluster.Open(context.Background())
		if err != nil {
			return
		}
		defer client.Close()
		w.Event("%s", f.watch(w, client, server, want, done))
	})
	return fmt.Sprintf("the node of server %d is to be %s", server, want), nil
}

// watch sets the node's status, follows the node's progress until it ends, and describes the
// result.
func (f retire) watch(w *World, client *kv.Client, server int, want admin.NodeStatus,
	done <-chan struct{}) string {
	node := w.nodeAt(client, server)
	if node == 0 {
		return fmt.Sprintf("the node of server %d is not known", server)
	}
	set := func(status admin.NodeStatus) (admin.NodeProgress, error) {
		ctx, cancel := context.WithTimeout(context.Background(), movePatience)
		defer cancel()
		return admin.New(client).SetNodeStatus(ctx, node, status)
	}
	if _, err := set(want); err != nil {
		return fmt.Sprintf("node %d is not %s: %v", node, want, err)
	}
	w.count("retirements")
	began := time.Now()
	for {
		if f.Undo > 0 && time.Since(began) >= f.Undo {
			if _, err := set(admin.NodeActive); err == nil {
				return fmt.Sprintf("node %d is active again", node)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), movePatience)
		p, err := admin.New(client).CheckNodeStatus(ctx, node, want)
		cancel()
		if err == nil && p.Status == admin.NodeGone {
			w.replace(server, node)
			return fmt.Sprintf("node %d is gone, and server %d begins with an empty directory", node,
				server)
		}
		select {
		case <-done:
			return fmt.Sprintf("node %d is left to the end", node)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// checkRetired runs when the cluster is whole again. It makes drained and decommissioning nodes
// active, and restarts servers of removed nodes with an empty directory.
func (w *World) checkRetired(ctx context.Context) {
	client, err := w.Cluster.Open(ctx)
	if err != nil {
		w.Violation("looking for nodes that are taken out: %v", err)
		return
	}
	defer client.Close()
	for left := "not looked at yet"; left != ""; {
		if ctx.Err() != nil {
			w.Violation("the cluster is whole again, and %s", left)
			return
		}
		nodes, err := admin.New(client).Nodes(ctx)
		if left = ""; err != nil {
			left = fmt.Sprintf("its nodes are not known: %v", err)
		}
		there := map[string]bool{}
		for _, n := range nodes {
			there[n.Address] = there[n.Address] || n.Status != admin.NodeGone
		}
		for _, n := range nodes {
			switch n.Status {
			case admin.NodeActive:
				continue
			case admin.NodeGone:
				// The server may run as a later node already.
				for i, address := range w.Cluster.Endpoints() {
					if address == n.Address && !there[address] {
						w.replace(i, n.ID)
						left = fmt.Sprintf("server %d begins anew", i)
					}
				}
				continue
			}
			if _, err := admin.New(client).SetNodeStatus(ctx, n.ID, admin.NodeActive); err != nil {
				left = fmt.Sprintf("node %d is %s: %v", n.ID, n.Status, err)
			}
		}
		if left != "" {
			sleep(ctx, 500*time.Millisecond)
		}
	}
}

// nodeAt returns the id of the server's node; 0 if the core does not know it or does not answer.
func (w *World) nodeAt(client *kv.Client, server int) uint64 {
	ctx, cancel := context.WithTimeout(context.Background(), movePatience)
	defer cancel()
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return 0
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		if n := nodes[i]; n.Address == w.Cluster.Endpoints()[server] && n.Status != admin.NodeGone {
			return n.ID
		}
	}
	return 0
}

// replace restarts the server of a removed node with an empty directory.
//
// INVARIANT: a removed node holds no data that the cluster needs. So replace may happen any number
// of times, and a replica that is missing afterwards is a violation.
func (w *World) replace(server int, node uint64) {
	w.mu.Lock()
	again := w.mu.replaced[node]
	w.mu.replaced[node] = true
	w.mu.Unlock()
	if again {
		return // another fault had the same node drained or decommissioned
	}
	w.power <- struct{}{}
	if p := w.Cluster.Process(server); p != nil {
		for _, r := range p.Replicas() {
			// The node's replica may not know yet that the partition has moved away.
			w.Event("node %d is gone and still has a replica of partition %d", node, r.Partition)
		}
	}
	w.ending(server)
	w.Cluster.KillAll(0, server)
	if err := w.Cluster.Wipe(server); err != nil {
		w.Violation("wiping server %d: %v", server, err)
	}
	w.count("replaced nodes")
	<-w.power
	w.start(server)
}

// isRetired says whether a server ended because its node was decommissioned.
func isRetired(err error) bool {
	return err != nil && strings.Contains(err.Error(), "was decommissioned")
}

// lively sets short delays, so that the planner acts within a run.
func lively(c *embedded.ServerConfig) {
	c.Planner.RepairDelay = 25 * time.Second
	c.Planner.DisplacedDelay = 5 * time.Second
	c.Planner.Settle = 3 * time.Second
	c.Planner.Pause = 20 * time.Second
	c.Planner.LeastBytes = 64 << 10
}
