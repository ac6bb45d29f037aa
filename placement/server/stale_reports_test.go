package server

import (
	"math"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A leader of the core that has just begun does not say that a node leads nothing before the node
// has said what it leads; nor does one that has led before take what it heard then for true.
func TestProgressIsNotToldFromStaleReports(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 9, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		ask := func(when string) {
			t.Helper()
			told := 0
			for range 100 {
				time.Sleep(100 * time.Millisecond) // virtual
				want := uint64(f.leads()[2])
				r, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 2,
					Status: clusterpb.NodeStatus_NODE_DRAINING, DryRun: true})
				if err != nil {
					continue
				}
				if told++; r.Leaders != want || r.LeadersLeft != want {
					t.Fatalf("%s: node 2 leads %d, it is said to lead %d, %d of them to go", when, want,
						r.Leaders, r.LeadersLeft)
				}
			}
			if told == 0 {
				t.Fatalf("%s: nothing is told at all", when)
			}
		}
		c.elect(c.members[1])
		ask("under a new leader")
		f.mu.Lock()
		for _, p := range f.parts {
			p.leader = 2
			p.term++
		}
		f.mu.Unlock()
		time.Sleep(10 * time.Second) // virtual
		c.elect(c.members[0])
		ask("under one that led before")
	})
}

// What a drained node leads and no other replica can is not left to go.
func TestDrainOfTheOnlyReplica(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 9, 3))
		f.create(hash("y", 3, 1))
		time.Sleep(10 * time.Second) // virtual; the nodes report what they lead
		f.await(time.Minute, "all is well", func() bool { return f.idle() && f.leads()[2] == 4 })
		drain := func() *clusterpb.SetNodeStatusResponse {
			r, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 2,
				Status: clusterpb.NodeStatus_NODE_DRAINING})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		if r := drain(); r.Leaders != 4 || r.LeadersLeft != 3 || len(r.Obstacles) != 1 {
			t.Errorf("at first: %v", r)
		}
		f.await(time.Minute, "the other three are led elsewhere", func() bool {
			return drain().LeadersLeft == 0
		})
		if n := f.leads()[2]; n != 1 {
			t.Errorf("it leads %d partitions, want the one that no other node has", n)
		}
	})
}

// An operator that this member remembers from an earlier leadership, and that has ended since,
// gives no orders.
func TestNoOrdersOfAnOperatorThatHasEnded(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		s := c.members[0].server
		p := partitionsIn(t, f.client, "x")[0]
		out := p.Partition.Replicas[2]
		s.reports.BeginOperator(&serverpb.Operator{Id: 77, Partition: p.Partition.Id,
			Keyspace: p.Partition.Keyspace, RemoveNode: out.Node, RemoveReplica: out.Replica})
		orders, err := s.operators.Orders(keys.NodeID(p.LeaderNode))
		if err != nil || len(orders) != 0 {
			t.Errorf("orders %v, %v", orders, err)
		}
	})
}

// Reports of partitions that are gone, or that never were, are forgotten, so that they take no room
// from others.
func TestReportsOfNoPartitionAreForgotten(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 6, 3))
		f.create(hash("y", 2, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		if _, err := f.client.DropKeyspace(t.Context(), &clusterpb.DropKeyspaceRequest{
			Name: "x"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second) // virtual; the nodes hear of it late
		f.mu.Lock()
		for id, p := range f.parts {
			if p.d.Keyspace == 1 {
				delete(f.parts, id)
			}
		}
		f.mu.Unlock()
		time.Sleep(5 * time.Minute) // virtual
		partitions, leaders, _ := c.members[0].server.reports.Kept()
		if partitions != 2 {
			t.Errorf("%d partitions are remembered, want 2", partitions)
		}
		if leaders != 2 {
			t.Errorf("the leaders of %d partitions are remembered, want 2", leaders)
		}
	})
}

// A node that reports nonsense of a partition keeps its true leader from being heard for a while,
// and not for ever.
func TestNonsenseIsForgotten(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		on := f.where()[100]
		for _, node := range []uint64{10 - on[0] - on[1] - on[2], on[1]} { // without and with a replica
			if _, err := f.client.Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{Cluster: testCluster,
				Node: node, Server: f.nodes[node].server, Reports: []*clusterpb.PartitionReport{{
					Partition: 100, Term: math.MaxUint64, Generation: 1, Membership: math.MaxUint64,
					SizeBytes: math.MaxUint64, Described: &clusterpb.Partition{Id: 100, Keyspace: 1,
						Generation: 1, Membership: math.MaxUint64, NextReplica: math.MaxUint64,
						Replicas: []*clusterpb.Replica{{Node: 99, Replica: math.MaxUint64, Role: 17}}}}},
				Stats: &clusterpb.NodeStats{DiskUsedBytes: math.MaxUint64, DiskFreeBytes: math.MaxUint64,
					Broken: []uint64{0, 100, 100, math.MaxUint64}}}); err != nil {
				t.Fatal(err)
			}
			f.await(3*time.Minute, "the true leader is heard", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				p := partitionsIn(t, f.client, "x")[0]
				return p.LeaderNode == f.parts[100].leader && p.SizeBytes == f.parts[100].bytes
			})
		}
		f.kill(on[0])
		f.await(10*time.Minute, "the replica is replaced", func() bool {
			return f.sound(3) && f.idle()
		})
	})
}
