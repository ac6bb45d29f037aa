package node

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node that restarts knows of the other nodes what the core has last told it, whether the core
// answers or not: that another one is at a node's address by now, that one is gone for good. Else
// its clients would ask for the one at the address of the other.
func TestNodesOutliveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.createHash(2, 1)
		m := c.nodes[1]
		told := []*clusterpb.Node{
			{Id: 7, Address: "here:1", HttpAddress: "here:2", Version: "v", StartedUnix: 5,
				Locality: &clusterpb.Locality{Zone: "z"}, Tags: []string{"disk=ssd"}, Displaced: true},
			{Id: 8, Address: "there:1", Status: clusterpb.NodeStatus_NODE_GONE},
		}
		c.core.update(&clusterpb.TableUpdate{Nodes: []*clusterpb.Node{{Id: 7, Address: "here:1"},
			{Id: 8, Address: "there:1"}}})
		c.await("the nodes are known", 10*time.Second,
			func() bool { return m.Table().Node(8) != nil })
		c.core.update(&clusterpb.TableUpdate{Nodes: told})
		c.await("the news is known", 10*time.Second,
			func() bool { return m.Table().Node(7).Displaced })
		p := c.createHash(3, 1)[0]
		c.mustPut(p, "k", "v") // and so what was told is on the disk
		for _, down := range []bool{true, false} {
			m.crash()
			c.core.setDown(down)
			m.start()
			time.Sleep(10 * time.Second) // virtual
			for _, want := range told {
				if got := m.Table().Node(keys.NodeID(want.Id)); !proto.Equal(got, want) {
					t.Errorf("without the core (%v) it knows %v, was told %v", down, got, want)
				}
			}
			if !(fence{node: m.Node}).gone(8) {
				t.Errorf("without the core (%v) it listens to a node that is gone for good", down)
			}
			err := m.Subscribe(t.Context(), func(u *clusterpb.TableUpdate) error {
				for _, n := range u.Nodes {
					if n.Id == 7 && !n.Displaced {
						t.Errorf("it tells clients of %v", n)
					}
				}
				return io.EOF
			})
			if !errors.Is(err, io.EOF) {
				t.Fatal(err)
			}
		}
	})
}
