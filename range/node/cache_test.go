package node

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/table"
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

// A table that an earlier version has kept lacks what that left out, and the core does not tell it
// again unless it is asked for all. Until it has told, the node goes on by what it has.
func TestTableOfAnotherFormatIsSentAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		p := c.createHash(2, 1)[0]
		m := c.nodes[1]
		c.core.update(&clusterpb.TableUpdate{Nodes: []*clusterpb.Node{{Id: 7, Address: "here:1"},
			{Id: 8, Address: "there:1", Status: clusterpb.NodeStatus_NODE_GONE}}})
		c.await("the nodes are known", 10*time.Second,
			func() bool { return m.Table().Node(8) != nil })
		c.mustPut(p, "k", "v")

		// What the earlier version has left: no status, and a revision without a format.
		b := m.log.NewBatch()
		defer b.Close()
		for key, x := range map[string]proto.Message{
			string(table.Key(table.KindNode, 8)): &clusterpb.Node{Id: 8, Address: "there:1"},
			string(table.Key(table.KindRevision, table.FormatUnknown)): &clusterpb.TableUpdate{
				Cluster: testCluster, Revision: m.Table().Revision},
		} {
			record, err := proto.Marshal(x)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Set([]byte(key), table.Seal([]byte(key), record), nil); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Delete(table.Key(table.KindRevision, table.Format), nil); err != nil {
			t.Fatal(err)
		}
		if err := m.log.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		gone := func() bool { return (fence{node: m.Node}).gone(8) }

		m.crash()
		c.core.setDown(true)
		// A change that the core makes meanwhile, and that says nothing of node 8.
		c.core.update(&clusterpb.TableUpdate{RemovedNodes: []uint64{7}})
		m.start()
		c.mustPut(p, "k", "w") // without the core
		if gone() {
			t.Fatal("the earlier version has kept the status")
		}
		c.core.setDown(false)
		c.await("it is told that a node is gone", 30*time.Second, gone)
		if n := m.Table().Node(7); n != nil {
			t.Errorf("it has not heard that %v is removed", n)
		}
		c.mustPut(p, "k", "x")

		m.crash()
		c.core.setDown(true)
		m.start()
		if table := m.Table(); !gone() || table.Outdated || table.Node(7) != nil {
			t.Errorf("of the table that was sent anew, it has kept %v", table.Nodes())
		}
	})
}
