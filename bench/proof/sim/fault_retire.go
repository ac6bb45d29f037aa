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

// retire drains or decommissions the node of a server, while other faults happen. One that is gone
// loses its directory, and its server comes back as a new node. A member of the core is drained
// only: its directory has the core's data too.
type retire struct {
	// Server is counted around.
	Server int `most:"1000"`
	Drain  bool
	// Undo is after how long it is taken back; 0: never before the schedule is over.
	Undo time.Duration
}

var _ = register("retire", 10, 0, func(d *Dice) retire {
	r := retire{Server: d.IntN(d.Servers), Drain: d.IntN(4) == 0}
	if d.IntN(3) == 0 {
		r.Undo = d.Between(50*time.Millisecond, 20*time.Second)
	}
	return r
})

// Begin implements Effect. The core is asked in the background: it may be cut off.
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

// watch has the node's status set, and sees what becomes of it. It says so at its end.
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

// checkRetired makes all nodes active that are drained or decommissioned when the cluster is whole
// again, and begins servers anew whose nodes are gone.
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
				// A later node of the server may be there already.
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

// nodeAt is the node that a server is; 0 if the core does not say.
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

// replace takes the directory of a server away whose node is gone, and starts it anew.
//
// INVARIANT: a node that is gone holds nothing. So this is no loss, however often it happens, and a
// replica that is missing afterwards is a violation.
func (w *World) replace(server int, node uint64) {
	w.mu.Lock()
	again := w.mu.replaced[node]
	w.mu.replaced[node] = true
	w.mu.Unlock()
	if again {
		return // another fault had it drained or decommissioned too
	}
	w.power <- struct{}{}
	if p := w.Cluster.Process(server); p != nil {
		for _, r := range p.Replicas() {
			// Its own may not have heard yet that the partition is elsewhere.
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

// lively are settings of the planner that have it act within a run.
func lively(c *embedded.ServerConfig) {
	c.Planner.RepairDelay = 25 * time.Second
	c.Planner.DisplacedDelay = 5 * time.Second
	c.Planner.Settle = 3 * time.Second
	c.Planner.Pause = 20 * time.Second
	c.Planner.LeastBytes = 64 << 10
}
