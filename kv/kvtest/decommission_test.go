package kvtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// A server whose node was decommissioned goes on as a member of the core, also when it is started
// again; the core may have no majority without it.
func TestADecommissionedNodeLeavesItsCoreMember(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 4, Cores: 3, Latency: latency})
		client := c.Client(t)
		ks, err := client.CreateKeyspace(t.Context(), "k", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := admin.New(client).Nodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range nodes {
			if n.Address != c.Endpoints()[0] {
				continue
			}
			until(t, "the node can be let go", func(ctx context.Context) bool {
				_, err := admin.New(client).SetNodeStatus(ctx, n.ID, admin.NodeDecommissioning)
				return err == nil
			})
			until(t, "the node is gone", func(ctx context.Context) bool {
				p, err := admin.New(client).CheckNodeStatus(ctx, n.ID, admin.NodeDecommissioning)
				return err == nil && p.Status == admin.NodeGone
			})
		}
		if err := c.Restart(0); err != nil {
			t.Fatal(err)
		}
		until(t, "the server is ready again", func(context.Context) bool {
			ready, _ := c.Process(0).Ready()
			return ready
		})
		// Without it the core would have no majority.
		if err := c.Stop(1); err != nil {
			t.Fatal(err)
		}
		until(t, "the core works", func(ctx context.Context) bool {
			_, err := admin.New(client).PausePlacement(ctx, true)
			return err == nil
		})
		until(t, "the data are written", func(ctx context.Context) bool {
			_, err := ks.Put(ctx, []byte("key"), []byte("value"))
			return err == nil
		})
	})
}

// until waits, in virtual time, for a condition.
func until(t *testing.T, what string, holds func(context.Context) bool) {
	t.Helper()
	for range 600 {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		ok := holds(ctx)
		cancel()
		if ok {
			return
		}
		time.Sleep(500 * time.Millisecond) // virtual
	}
	t.Fatalf("waited in vain: %s", what)
}
