package server

import (
	"bytes"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node of a version that knows no users is let in while there are none, and is in the way of
// enabling authentication then. While that holds, it is neither let in nor let in again, and hears
// what to do; a node that knows users is.
func TestOldNodesAreNotLetIn(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		ctx := t.Context()
		register := func(server uint64, address string, r *clusterpb.GuardReport) (uint64, error) {
			registered, err := client.Register(ctx, &clusterpb.RegisterNodeRequest{Server: server,
				Address: address, Guard: r})
			return registered.GetNode(), err
		}
		knows := &clusterpb.GuardReport{Knows: true, Closes: true}
		old, err := register(1001, "node1:1", nil)
		if err != nil {
			t.Fatalf("without users: %v", err)
		}
		for _, inTheWay := range [][]*clusterpb.UnguardedServer{
			guardingOf(t, client, clusterpb.GuardingRequest_SHOW, 0).Open,
			guardingOf(t, client, clusterpb.GuardingRequest_BEGIN, 0).Behind} {
			if !isInTheWay(inTheWay, old, "upgrade it") {
				t.Errorf("authentication could be enabled: %v", inTheWay)
			}
		}
		for server, address := range map[uint64]string{1001: "node1:1", 1002: "node2:1"} {
			if _, err := register(server, address, nil); !isRefused(err) {
				t.Errorf("an old node, %d: %v", server, err)
			}
		}
		if _, err := register(1003, "node3:1", knows); err != nil {
			t.Errorf("a node that knows users: %v", err)
		}
		if id, err := register(1001, "node1:1", knows); err != nil || id != old {
			t.Errorf("the old node when it was upgraded: %d, %v", id, err)
		}
		for range 2 {
			version := guardingOf(t, client, clusterpb.GuardingRequest_SHOW, 0).Guard.Version
			guardingOf(t, client, clusterpb.GuardingRequest_END, version)
		}
		if _, err := register(1002, "node2:1", nil); err != nil {
			t.Errorf("when there are no users any more: %v", err)
		}
	})
}

func isRefused(err error) bool {
	return status.Code(err) == codes.FailedPrecondition && strings.Contains(err.Error(), "upgrade it")
}

func isInTheWay(all []*clusterpb.UnguardedServer, node uint64, why string) bool {
	for _, x := range all {
		if x.Node == node && strings.Contains(x.Reason, why) {
			return true
		}
	}
	return false
}

// A registration that began before authentication was being enabled, and is to be recorded after
// that, by another leader, does not let an old node in, be it new or known.
func TestOldNodeBesideEnabling(t *testing.T) {
	for _, known := range []bool{false, true} {
		inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
			register := func(version string) error {
				_, err := client.Register(t.Context(), &clusterpb.RegisterNodeRequest{Server: 1001,
					Address: "node1:1", Version: version})
				return err
			}
			inTheWay := len(c.members)
			if known {
				if err := register("older"); err != nil {
					t.Fatal(err)
				}
				inTheWay++
			}
			const old = "an old version"
			c.hold(old)
			registered := make(chan error, 1)
			go func() { registered <- register(old) }()
			c.await("the registration waits", c.holding)
			c.elect(c.members[1])
			// The client asks the next leader, which looks while authentication is off.
			c.await("the registration waits at the next leader", func() bool {
				c.mu.Lock()
				defer c.mu.Unlock()
				return len(c.held) > 1
			})
			if g := guardingOf(t, client, clusterpb.GuardingRequest_BEGIN, 0); !g.Guard.On {
				t.Fatalf("%v", g)
			}
			c.release()
			if err := <-registered; !isRefused(err) {
				t.Errorf("known %t: the old node is let in: %v", known, err)
			}
			g := guardingOf(t, client, clusterpb.GuardingRequest_SHOW, 0)
			if len(g.Behind) != inTheWay {
				t.Errorf("known %t: in the way are %v", known, g.Behind)
			}
			for kv, err := range c.members[1].server.config.Store.Stale().All([]byte(meta.NodePrefix)) {
				if err != nil || bytes.Contains(kv.Value, []byte(old)) {
					t.Errorf("known %t: it is recorded as %q, %v", known, kv.Value, err)
				}
			}
		})
	}
}
