package server

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// interruption is what happens to a call that writes to the core, at one of its proposals.
type interruption struct {
	name string
	// at arranges that the interruption happens at the n-th proposal from now on.
	at func(c *core, n int)
}

const lost = "this proposal and those after it are lost, and the caller gives up"

var interruptions = []interruption{
	{"the core's leader falls before the proposal", func(c *core, n int) {
		c.crashAt, c.applied = c.proposed+n, false
	}},
	{"the core's leader falls after the proposal", func(c *core, n int) {
		c.crashAt, c.applied = c.proposed+n, true
	}},
	{"this proposal and those after it wait, and are made when the caller has gone",
		func(c *core, n int) { c.holds = func([]byte) bool { n--; return n <= 0 } }},
	{lost, func(c *core, n int) { c.holds = func([]byte) bool { n--; return n <= 0 } }},
}

// aliveNodes says of each node whether the core takes it for alive, and for displaced.
func aliveNodes(t *testing.T, c *core, client *coreclient.Client) map[uint64]string {
	t.Helper()
	list, err := client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[uint64]string{}
	for _, n := range list.Nodes {
		all[n.Id] = fmt.Sprintf("alive %v", n.Alive)
		record := &clusterpb.Node{}
		if _, err := meta.Load(c.members[0].store.Stale(), meta.NodeKey(keys.NodeID(n.Id)),
			record); err != nil {
			t.Fatal(err)
		}
		if record.Displaced {
			all[n.Id] += ", displaced"
		}
	}
	return all
}

// A heartbeat that is answered means that the node is alive, wherever an earlier call was cut short
// that recorded this.
func TestAHeartbeatThatIsAnsweredMeansAlive(t *testing.T) {
	beat := func(ctx context.Context, client *coreclient.Client) error {
		_, err := client.Heartbeat(ctx,
			&clusterpb.HeartbeatRequest{Cluster: testCluster, Node: 1, Server: 11})
		return err
	}
	register := func(ctx context.Context, client *coreclient.Client, server uint64) error {
		_, err := client.Register(ctx, &clusterpb.RegisterNodeRequest{Server: server,
			Address: "a:1"})
		return err
	}
	// cut is the call that is interrupted: what comes before it, and the call.
	cuts := map[string]struct {
		before func()
		call   func(ctx context.Context, client *coreclient.Client) error
	}{
		"heartbeat after the lease ended": {func() { time.Sleep(15 * time.Second) }, beat},
		"registration after the lease ended": {func() { time.Sleep(15 * time.Second) },
			func(ctx context.Context, client *coreclient.Client) error { return register(ctx, client, 11) }},
		// The other directory is registered at the same address by mistake, and never comes back.
		"registration of another directory": {func() {},
			func(ctx context.Context, client *coreclient.Client) error { return register(ctx, client, 12) }},
	}
	for name, cut := range cuts {
		for _, x := range interruptions {
			reached := true
			for n := 1; reached; n++ {
				inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
					if err := register(t.Context(), client, 11); err != nil {
						t.Fatal(err)
					}
					cut.before()
					synctest.Wait()
					c.mu.Lock()
					before := c.proposed
					x.at(c, n)
					c.mu.Unlock()
					ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
					_ = cut.call(ctx, client)
					cancel()
					synctest.Wait()
					c.mu.Lock()
					reached = c.proposed >= before+n || len(c.held) > 0
					if x.name == lost {
						c.held = nil
					}
					c.crashAt = 0
					c.mu.Unlock()
					c.release()
					synctest.Wait()
					// Two heartbeats: the first may find the lease that is about to be revoked.
					for range 2 {
						if err := beat(t.Context(), client); err != nil {
							t.Fatal(err)
						}
						if got := aliveNodes(t, c, client)[1]; got != "alive true" {
							t.Errorf("%s, cut at proposal %d (%s): its heartbeat was answered, and the "+
								"node is %s", name, n, x.name, got)
						}
						time.Sleep(3 * time.Second)
					}
				})
				if n > 12 {
					t.Fatalf("%s: more proposals than are thought possible", name)
				}
			}
		}
	}
}
