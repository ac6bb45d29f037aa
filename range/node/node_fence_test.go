package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestANodeThatIsGoneIsNotHeard: with it there would be a majority.
func TestANodeThatIsGoneIsNotHeard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		p := c.createHash(7, 1)[0]
		c.mustPut(p, "a", "b")
		c.await("node 1 leads", time.Minute, func() bool {
			node, _ := c.believedLeader(p.Id)
			return node == 1
		})
		status := func(s clusterpb.NodeStatus) {
			c.core.update(&clusterpb.TableUpdate{Nodes: []*clusterpb.Node{{Id: 3,
				Address: fmt.Sprintf("node-%d:1", 3), Alive: true, Status: s}}})
		}
		status(clusterpb.NodeStatus_NODE_GONE)
		time.Sleep(time.Second) // virtual
		c.nodes[1].crash()      // a stop would hand the lead over, with its own vote
		for range 60 {
			for _, id := range []uint64{2, 3} {
				c.nodes[id].replicas.Get(keys.PartitionID(p.Id)).Group.Wake()
			}
			if node, _ := c.believedLeader(p.Id); node != 0 {
				t.Fatalf("node %d leads by the vote of one that is gone", node)
			}
			time.Sleep(time.Second) // virtual
		}
		status(clusterpb.NodeStatus_NODE_ACTIVE)
		c.mustGet(p, "a", "b")
	})
}
