package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// mover gives the orders of an operator that replaces the replica on one node by one on another.
type mover struct {
	from, to uint64
	newcomer uint64
}

func (m *mover) order(p *clusterpb.Partition) *clusterpb.Order {
	find := func(node uint64) *clusterpb.Replica {
		for _, r := range p.GetReplicas() {
			if r.Node == node {
				return r
			}
		}
		return nil
	}
	next := proto.Clone(p).(*clusterpb.Partition)
	next.Membership++
	role := func(node uint64, role clusterpb.ReplicaRole) {
		for _, r := range next.Replicas {
			if r.Node == node {
				r.Role = role
			}
		}
	}
	out, in := find(m.from), find(m.to)
	switch {
	case in == nil && out != nil:
		next.Replicas = append(next.Replicas, &clusterpb.Replica{Node: m.to, Replica: m.newcomer,
			Role: clusterpb.ReplicaRole_LEARNER})
	case in.GetRole() == clusterpb.ReplicaRole_LEARNER:
		role(m.to, clusterpb.ReplicaRole_INCOMING)
		role(m.from, clusterpb.ReplicaRole_OUTGOING)
	case in.GetRole() == clusterpb.ReplicaRole_INCOMING:
		next.Replicas = nil
		for _, r := range p.Replicas {
			if r.Node != m.from {
				next.Replicas = append(next.Replicas, &clusterpb.Replica{Node: r.Node, Replica: r.Replica})
			}
		}
	default:
		return nil
	}
	return &clusterpb.Order{Operator: 1, Target: next}
}

// TestAReplicaMovesToAnotherNode: under writes, the core's orders are carried out by the
// partition's leader, the newcomer is filled, and the node that is named out removes what it has,
// for good: not even its disk takes it back.
func TestAReplicaMovesToAnotherNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.core.follow = true
		partitions := c.createHash(7, 3)
		for _, p := range partitions {
			for i := range 20 {
				c.mustPut(p, fmt.Sprintf("k%d", i), "before")
			}
		}
		c.add(4)
		p := partitions[0]
		leader, _ := c.believedLeader(p.Id)
		out := p.Replicas[2].Node
		if out == leader {
			out = p.Replicas[1].Node
		}
		m := &mover{from: out, to: 4, newcomer: 4}
		c.core.mu.Lock()
		c.core.orders = func(d *clusterpb.Partition) *clusterpb.Order {
			if d.GetId() != p.Id {
				return nil
			}
			return m.order(d)
		}
		c.core.mu.Unlock()
		i := 0
		c.await("the replica to move", time.Minute, func() bool {
			i++
			c.mustPut(p, fmt.Sprintf("m%d", i), "moving")
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			return m.order(c.core.table.Partition(keys.PartitionID(p.Id))) == nil
		})
		id := keys.PartitionID(p.Id)
		c.await("the old replica to be gone", 10*time.Second, func() bool {
			return c.nodes[out].replicas.Get(id) == nil
		})
		c.mustPut(p, "after", "moved")
		newcomer := c.nodes[4].replicas.Get(id)
		c.await("the new replica to have everything", 10*time.Second, func() bool {
			now, _ := c.believedLeader(p.Id)
			of := c.nodes[now].replicas.Get(id)
			return newcomer.Replica.Stats() == of.Replica.Stats()
		})
		for j := 1; j <= i; j++ {
			c.mustGet(p, fmt.Sprintf("m%d", j), "moving")
		}
		// Without one of the nodes that stay it goes on with the newcomer.
		for _, r := range p.Replicas {
			if r.Node != out && r.Node != leader {
				c.nodes[r.Node].stop()
			}
		}
		c.mustPut(p, "with", "the newcomer")
		c.mustGet(p, "k3", "before")
		c.nodes[out].crash()
		c.nodes[out].start()
		c.await("the node that is named out to have the rest only", 10*time.Second, func() bool {
			return c.nodes[out].replicas.Get(id) == nil && len(c.nodes[out].replicas.All()) == 2
		})
	})
}

// add adds a node that has nothing.
func (c *cluster) add(id uint64) {
	like := c.nodes[1]
	c.nodes[id] = &member{cluster: c, id: id, fs: vfs.NewCrashableMem(), physical: &shifted{},
		change: like.change}
	c.core.update(&clusterpb.TableUpdate{Nodes: []*clusterpb.Node{{Id: id,
		Address: fmt.Sprintf("node-%d:1", id), Alive: true}}})
	c.nodes[id].start()
}

// TestAnOrderThatWaitsIsNotBusy: an order that waits for a goroutine does not keep its partition
// frozen.
func TestAnOrderThatWaitsIsNotBusy(t *testing.T) {
	var s orders
	s.init(nil)
	h := new(hosted.Replica)
	s.mu.due[h] = &order{Order: new(clusterpb.Order)}
	if idle, _ := s.idle(time.Now()); idle[h] == nil || s.busy(h) {
		t.Errorf("%d orders are due, busy %v", len(idle), s.busy(h))
	}
	s.works(h)
	if !s.busy(h) {
		t.Error("an order that is carried out does not count")
	}
}

// TestALaterOrderTakesTheEarliersPlace: one that waits for a node that never comes gives way to the
// one that takes the learner out again.
func TestALaterOrderTakesTheEarliersPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.core.follow = true
		p := c.createHash(7, 1)[0]
		c.mustPut(p, "a", "b")
		leader, _ := c.believedLeader(p.Id)
		out := p.Replicas[2].Node
		if out == leader {
			out = p.Replicas[1].Node
		}
		m := &mover{from: out, to: 4, newcomer: 4} // node 4 never comes
		cancelled := false
		c.core.mu.Lock()
		c.core.orders = func(d *clusterpb.Partition) *clusterpb.Order {
			if d.GetId() != p.Id {
				return nil
			}
			if !cancelled {
				return m.order(d)
			}
			next := proto.Clone(d).(*clusterpb.Partition)
			next.Membership++
			next.Replicas = next.Replicas[:3]
			if len(d.Replicas) == 3 {
				return nil
			}
			return &clusterpb.Order{Operator: 1, Target: next}
		}
		c.core.mu.Unlock()
		replicas := func() int {
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			return len(c.core.table.Partition(keys.PartitionID(p.Id)).Replicas)
		}
		c.await("the learner", time.Minute, func() bool { return replicas() == 4 })
		time.Sleep(10 * time.Second) // virtual
		c.core.mu.Lock()
		cancelled = true
		c.core.mu.Unlock()
		time.Sleep(2 * time.Minute) // virtual
		if n := replicas(); n != 3 {
			t.Errorf("two minutes after the cancellation there are %d replicas", n)
		}
	})
}

// TestAChangeWithoutItsFenceIsReported: the change was applied, and the entry behind it was not
// made. The core, which does not know, orders it again.
func TestAChangeWithoutItsFenceIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.core.follow = true
		p := c.createHash(7, 1)[0]
		c.mustPut(p, "a", "b")
		leader, _ := c.believedLeader(p.Id)
		m := &mover{from: p.Replicas[2].Node, to: 4, newcomer: 4}
		h := c.nodes[leader].replicas.Get(keys.PartitionID(p.Id))
		if err := h.Replica.Reshape().ChangeDescriptor(t.Context(), m.order(p).Target); err != nil {
			t.Fatal(err)
		}
		c.core.mu.Lock()
		c.core.orders = func(d *clusterpb.Partition) *clusterpb.Order {
			if len(d.GetReplicas()) == 3 {
				return m.order(d)
			}
			return nil
		}
		c.core.mu.Unlock()
		c.await("the core to hear of it", time.Minute, func() bool {
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			return len(c.core.table.Partition(keys.PartitionID(p.Id)).Replicas) == 4
		})
	})
}
