package server

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// withLearner is a descriptor with a learner more.
func withLearner(d *clusterpb.Partition, node uint64) *clusterpb.Partition {
	next := proto.Clone(d).(*clusterpb.Partition)
	next.Membership++
	next.Replicas = append(next.Replicas, &clusterpb.Replica{Node: node, Replica: steps.NextReplica(d),
		Role: clusterpb.ReplicaRole_LEARNER})
	next.NextReplica = steps.NextReplica(d) + 1
	return next
}

// TestFollowManyReports: descriptors that leaders report go into the table many at a time; one that
// cannot be, or whose record has changed, does not hold up the others.
func TestFollowManyReports(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		var nodes []uint64
		for i := range 4 {
			id, stop := c.register(client, i+1, fmt.Sprint("zone", i))
			defer stop()
			nodes = append(nodes, id)
		}
		const all = 3*meta.Chunk - 10
		ks := create(t, c, client, hash("k", all, 3))
		s := c.members[0].server
		spare := func(d *clusterpb.Partition) uint64 {
			for _, n := range nodes {
				if !slices.ContainsFunc(d.Replicas,
					func(r *clusterpb.Replica) bool { return r.Node == n }) {
					return n
				}
			}
			return 0
		}
		var reports []*clusterpb.PartitionReport
		for _, info := range partitionsIn(t, client, "k") {
			d := withLearner(info.Partition, spare(info.Partition))
			if len(reports) == 100 {
				d.Replicas = nil // nothing can follow from that
			}
			reports = append(reports, &clusterpb.PartitionReport{Partition: d.Id, Term: 1,
				Generation: d.Generation, Membership: d.Membership, Described: d})
		}
		table := func(i int) *clusterpb.Partition {
			p, _, err := meta.LoadPartition(s.config.Store.Stale(), keys.KeyspaceID(ks.Id),
				keys.PartitionID(reports[i].Partition))
			if err != nil || p == nil {
				t.Fatalf("partition %d: %v, %v", i, p, err)
			}
			return p
		}
		before := c.proposals()
		if _, err := client.Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{Cluster: testCluster,
			Node: nodes[0], Server: 1001, Reports: reports, Full: true}); err != nil {
			t.Fatal(err)
		}
		c.await("the table to have all descriptors but one", func() bool {
			for i, r := range reports {
				if i != 100 && table(i).Membership != r.Membership {
					return false
				}
			}
			return true
		})
		if n := c.proposals() - before; n > 20 {
			t.Errorf("%d proposals for %d descriptors", n, all)
		}
		if table(100).Membership != group.FoundingMembership {
			t.Error("an impossible descriptor is in the table")
		}

		// The record of one changes between the look at it and the write: those with it go next time.
		for _, r := range reports {
			if r.Described.Replicas != nil {
				d := withLearner(r.Described, 0)
				d.Replicas = d.Replicas[:3]
				d.NextReplica = r.Described.NextReplica
				r.Described, r.Membership = d, d.Membership
			}
		}
		s.reports.Heartbeat(c.members[0].termNow(), &clusterpb.HeartbeatRequest{Node: nodes[0],
			Reports: reports}, 1<<20, 0)
		due, err := s.toFollow()
		if err != nil || len(due) != all-1 {
			t.Fatalf("%d are due, %v", len(due), err)
		}
		if ok, err := s.meta.Commit(t.Context(), []*storepb.Compare{},
			store.Put(meta.PartitionKey(keys.KeyspaceID(ks.Id), keys.PartitionID(reports[7].Partition)),
				meta.Encode(table(7)))); !ok || err != nil {
			t.Fatal(ok, err)
		}
		conflict, err := s.write(t.Context(), due)
		if !conflict || err != nil {
			t.Fatalf("conflict %t, %v", conflict, err)
		}
		if left, err := s.toFollow(); err != nil || len(left) == 0 || len(left) > meta.Chunk {
			t.Fatalf("%d are left, %v", len(left), err)
		}
		if err := s.followReports(t.Context()); err != nil {
			t.Fatal(err)
		}
		if left, err := s.toFollow(); err != nil || len(left) > 0 {
			t.Errorf("%d are left at last, %v", len(left), err)
		}
	})
}

// proposals is how many proposals there were.
func (c *core) proposals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.proposed
}

func (m *member) termNow() uint64 {
	m.core.mu.Lock()
	defer m.core.mu.Unlock()
	return m.core.term
}

// TestFindPartition: a partition is found by its id alone, in whichever keyspace it is, on a member
// that follows the table and on one that does not.
func TestFindPartition(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		_, stop := c.register(client, 1, "")
		defer stop()
		for i := range 3 {
			create(t, c, client, hash(fmt.Sprint("k", i), 20, 1))
		}
		for _, m := range c.members[:2] { // the leader, and another one
			v := m.store.Stale()
			for i := range 3 {
				for _, info := range partitionsIn(t, client, fmt.Sprint("k", i)) {
					d, err := m.server.operators.Find(v, keys.PartitionID(info.Partition.Id))
					if err != nil || d.GetId() != info.Partition.Id ||
						d.Keyspace != info.Partition.Keyspace {
						t.Fatalf("partition %d: %v, %v", info.Partition.Id, d, err)
					}
				}
			}
			if d, err := m.server.operators.Find(v, 1<<40); d != nil || err != nil {
				t.Errorf("a partition that is not there: %v, %v", d, err)
			}
		}
		synced := func() bool {
			_, known := c.members[0].server.scheduler.Keyspace(
				keys.PartitionID(partitionsIn(t, client, "k2")[0].Partition.Id))
			return known
		}
		c.await("the leader to know keyspaces by partition", synced)
		if _, known := c.members[1].server.scheduler.Keyspace(1); known {
			t.Error("a member that does not lead says that it knows")
		}
	})
}
