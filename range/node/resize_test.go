package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// resizer gives the orders that bring a partition's replicas to certain nodes, one at a time.
type resizer struct {
	want []uint64
}

// order is the next one, for the node that leads; nil: there is nothing to do.
func (s *resizer) order(p *clusterpb.Partition, leader uint64) *clusterpb.Order {
	next := proto.Clone(p).(*clusterpb.Partition)
	next.Membership++
	changed := func(r *clusterpb.Replica, role clusterpb.ReplicaRole) *clusterpb.Order {
		r.Role = role
		return &clusterpb.Order{Operator: 1, Target: next}
	}
	newest := uint64(0)
	missing := slices.Clone(s.want)
	for _, r := range p.Replicas {
		newest = max(newest, r.Replica+1, p.NextReplica)
		missing = slices.DeleteFunc(missing, func(n uint64) bool { return n == r.Node })
		if r.Role == clusterpb.ReplicaRole_INCOMING || r.Role == clusterpb.ReplicaRole_OUTGOING {
			next.Replicas = slices.DeleteFunc(next.Replicas, func(r *clusterpb.Replica) bool {
				return r.Role == clusterpb.ReplicaRole_OUTGOING
			})
			for _, r := range next.Replicas {
				if r.Role == clusterpb.ReplicaRole_INCOMING {
					r.Role = clusterpb.ReplicaRole_VOTER
				}
			}
			return &clusterpb.Order{Operator: 1, Target: next}
		}
	}
	for _, r := range next.Replicas {
		if r.Role == clusterpb.ReplicaRole_LEARNER {
			return changed(r, clusterpb.ReplicaRole_INCOMING)
		}
	}
	if len(missing) > 0 {
		next.NextReplica = newest + 1
		next.Replicas = append(next.Replicas, &clusterpb.Replica{Node: missing[0], Replica: newest,
			Role: clusterpb.ReplicaRole_LEARNER})
		return &clusterpb.Order{Operator: 1, Target: next}
	}
	for _, r := range next.Replicas {
		if slices.Contains(s.want, r.Node) {
			continue
		}
		if r.Node != leader {
			return changed(r, clusterpb.ReplicaRole_OUTGOING)
		}
		for _, to := range p.Replicas {
			if slices.Contains(s.want, to.Node) {
				return &clusterpb.Order{Operator: 1, Target: p, TransferTo: to.Replica}
			}
		}
	}
	return nil
}

// TestPartitionsGrowAndShrink: from one replica to three, five, and back to one, the only one moved
// from node to node, and the leader among those that go. Every write that was answered is there
// afterwards, also if nodes lose power all the time, with what their states had not written; and
// the nodes that are out have removed what they had.
func TestPartitionsGrowAndShrink(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { growAndShrink(t, seed) })
		})
	}
}

// growAndShrink has nodes crash, but with seed 0.
func growAndShrink(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 2))
	c := newCluster(t, 5, nil)
	c.core.follow = true
	prefix := keys.HashPrefix(7, 0)
	p := &clusterpb.Partition{Id: c.next, Keyspace: 7, Start: prefix, End: keys.PrefixEnd(prefix),
		Generation: 1, Membership: 1, PrefixLength: keys.HashPrefixLength,
		Replicas: []*clusterpb.Replica{{Node: 1, Replica: 1}}}
	c.core.update(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{Id: 7, Name: "ks7",
		Partitioning: clusterpb.Partitioning_HASH, HashPartitions: 1, ReplicationFactor: 1,
		GcWindowSeconds: 3600, State: clusterpb.KeyspaceState_ACTIVE}},
		Partitions: []*clusterpb.Partition{p}})
	for i := range 50 {
		c.mustPut(p, fmt.Sprintf("k%d", i), "before")
	}
	id := keys.PartitionID(p.Id)
	s := &resizer{}
	c.core.mu.Lock()
	c.core.orders = func(d *clusterpb.Partition) *clusterpb.Order {
		if d.GetId() != p.Id {
			return nil
		}
		return s.order(d, c.core.reporter[p.Id])
	}
	c.core.mu.Unlock()
	writes := 0
	for _, want := range [][]uint64{{2}, {1}, {1, 2, 3}, {3}, {1, 2, 3}, {1, 2, 3, 4, 5}, {2, 4, 5},
		{4}, {5}} {
		c.core.mu.Lock()
		s.want = want
		c.core.mu.Unlock()
		c.await(fmt.Sprintf("replicas on %v", want), 5*time.Minute, func() bool {
			writes++
			c.mustPut(p, fmt.Sprintf("m%d", writes), "meanwhile")
			if seed > 0 && random.IntN(8) == 0 {
				n := c.nodes[uint64(1+random.IntN(5))]
				n.crash()
				n.start()
			}
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			d := c.core.table.Partition(id)
			var now []uint64
			for _, r := range d.Replicas {
				now = append(now, r.Node)
			}
			slices.Sort(now)
			return slices.Equal(now, want) && s.order(d, c.core.reporter[p.Id]) == nil
		})
		c.await("the others to be gone", time.Minute, func() bool {
			for node, m := range c.nodes {
				if (m.replicas.Get(id) != nil) != slices.Contains(want, node) {
					return false
				}
			}
			return true
		})
	}
	for i := range 50 {
		c.mustGet(p, fmt.Sprintf("k%d", i), "before")
	}
	for i := 1; i <= writes; i++ {
		c.mustGet(p, fmt.Sprintf("m%d", i), "meanwhile")
	}
	t.Logf("%d writes", writes)
}
