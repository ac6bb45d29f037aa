package server

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/placement/server/coreclient"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// takeWoken are the nodes that were told of orders since the last call.
func (c *core) takeWoken() []keys.NodeID {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	woken := c.woken
	c.woken = nil
	return woken
}

// The node that leads a partition, and no other, is told when an operator of the partition is
// recorded and when it is taken back; of a merge, the leaders of both, and each when there is
// something new of the other one. Of many operators a node is told by one call at a time.
func TestOrdersWakeTheLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, c *core, client *coreclient.Client) {
		for n := range 3 {
			_, stop := c.register(client, n, "")
			defer stop()
		}
		const partitions = 100
		create(t, c, client, hash("x", partitions, 3))
		led := partitionsIn(t, client, "x")
		beat := &clusterpb.HeartbeatRequest{Cluster: testCluster, Node: 2, Server: 1001, Full: true}
		for _, p := range led {
			beat.Reports = append(beat.Reports, &clusterpb.PartitionReport{Partition: p.Partition.Id,
				Term: 5, Generation: 1, Membership: 1})
		}
		if _, err := client.Heartbeat(t.Context(), beat); err != nil {
			t.Fatal(err)
		}
		transfer := func(p *clusterpb.PartitionInfo) {
			t.Helper()
			if _, err := client.TransferLeader(t.Context(), &clusterpb.TransferLeaderRequest{
				Partition: p.Partition.Id, ToNode: 3}); err != nil {
				t.Fatal(err)
			}
		}
		c.takeWoken()
		transfer(led[0])
		if woken := c.takeWoken(); !slices.Equal(woken, []keys.NodeID{2}) {
			t.Errorf("told of an operator: nodes %v, node 2 leads the partition", woken)
		}
		if _, err := client.CancelOperator(t.Context(), &clusterpb.CancelOperatorRequest{
			Partition: led[0].Partition.Id}); err != nil {
			t.Fatal(err)
		}
		if woken := c.takeWoken(); !slices.Equal(woken, []keys.NodeID{2}) {
			t.Errorf("told that it is taken back: nodes %v, node 2 leads the partition", woken)
		}

		create(t, c, client, ranged("y", "m"))
		both := partitionsIn(t, client, "y")
		report := func(node uint64, p *clusterpb.PartitionInfo, term uint64) {
			t.Helper()
			if _, err := client.Heartbeat(t.Context(), &clusterpb.HeartbeatRequest{Cluster: testCluster,
				Node: node, Server: 999 + node, Reports: []*clusterpb.PartitionReport{{
					Partition: p.Partition.Id, Term: term, Generation: 1, Membership: 1}}}); err != nil {
				t.Fatal(err)
			}
		}
		report(1, both[0], 5)
		report(3, both[1], 5)
		c.takeWoken()
		if _, err := client.MergePartition(t.Context(), &clusterpb.MergePartitionRequest{
			Partition: both[0].Partition.Id}); err != nil {
			t.Fatal(err)
		}
		woken := c.takeWoken()
		if slices.Sort(woken); !slices.Equal(woken, []keys.NodeID{1, 3}) {
			t.Errorf("told of a merge: nodes %v, nodes 1 and 3 lead its partitions", woken)
		}
		report(2, both[1], 6)
		if woken := c.takeWoken(); !slices.Equal(woken, []keys.NodeID{1}) {
			t.Errorf("told that the right one is led by node 2: nodes %v, node 1 may go on", woken)
		}

		slow := make(chan struct{})
		c.mu.Lock()
		c.wakes = slow
		c.mu.Unlock()
		for _, p := range led[1:] {
			transfer(p)
		}
		if woken := c.takeWoken(); len(woken) != 1 {
			t.Errorf("node 2 is told of %d operators by %d calls at a time", partitions-1, len(woken))
		}
		close(slow)
		if woken := c.takeWoken(); len(woken) != 1 {
			t.Errorf("then it is told of those that came meanwhile by %d calls", len(woken))
		}
	})
}
