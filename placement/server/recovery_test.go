package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// recoverOn has a partition of the fleet go on from the replica on a node, as the tool does it, and
// says what the plan has of it.
func (f *fleet) recoverOn(id, node uint64) *clusterpb.RecoveredPartition {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parts[id]
	r := &clusterpb.RecoveredPartition{Partition: id, Keyspace: p.d.Keyspace, Node: node,
		Replica: steps.NextReplica(p.d) + 1000, Membership: p.d.Membership + 1000,
		KnownMembership: p.d.Membership}
	p.d.Membership, p.d.NextReplica, p.d.WantedLeader = r.Membership, r.Replica+1, 0
	p.d.Replicas = []*clusterpb.Replica{{Node: node, Replica: r.Replica}}
	p.usedIDs[r.Replica] = true
	return r
}

// TestARecoveryIsConfirmed: before that a descriptor without any replica from before is refused;
// then it is in the table, the lost nodes are gone for good, and replicas are added again.
func TestARecoveryIsConfirmed(t *testing.T) {
	inFleet(t, []string{"", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 6, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		var bereft []uint64
		for id, nodes := range f.where() {
			if slices.Contains(nodes, 4) && slices.Contains(nodes, 5) {
				bereft = append(bereft, id)
			}
		}
		if len(bereft) == 0 {
			t.Fatal("no partition has replicas on both")
		}
		f.kill(4)
		f.kill(5)
		request := &clusterpb.ConfirmRecoveryRequest{Plan: "p1", LostNodes: []uint64{4, 5}}
		for _, id := range bereft {
			var left uint64
			for _, node := range f.where()[id] {
				if node < 4 {
					left = node
				}
			}
			request.Partitions = append(request.Partitions, f.recoverOn(id, left))
		}
		inTable := func() (n int) {
			for _, p := range partitionsIn(t, f.client, "x") {
				if p.Partition.Membership > 1000 {
					n++
				}
			}
			return n
		}
		time.Sleep(time.Minute) // virtual
		if n := inTable(); n > 0 {
			t.Fatalf("%d recovered partitions are in the table, and nothing was confirmed", n)
		}
		first, err := f.client.ConfirmRecovery(t.Context(), request)
		if err != nil || first.Waiting != uint64(len(bereft)) {
			t.Fatalf("confirmed: %v, %v", first, err)
		}
		f.await(time.Minute, "they are in the table", func() bool { return inTable() == len(bereft) })
		again, err := f.client.ConfirmRecovery(t.Context(), request)
		if err != nil || again.Recovered != uint64(len(bereft)) || again.Waiting != 0 {
			t.Errorf("confirmed once more: %v, %v", again, err)
		}
		f.await(10*time.Minute, "three replicas each on what is left", func() bool {
			return f.sound(3) && f.idle() && f.holds()[4]+f.holds()[5] == 0
		})
		f.restart(4)
		f.await(time.Minute, "a lost node is refused", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.nodes[4].refused != nil &&
				strings.Contains(f.nodes[4].refused.Error(), "refused for good")
		})
	})
}

// TestARecoveryThatDoesNotFit: a node that lives is not given up, and a plan that was made without
// hearing of a later change does not take a partition away from a majority elsewhere.
func TestARecoveryThatDoesNotFit(t *testing.T) {
	inFleet(t, []string{"", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 4, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		fails := func(words string, r *clusterpb.ConfirmRecoveryRequest) {
			t.Helper()
			_, err := f.client.ConfirmRecovery(t.Context(), r)
			if err == nil || !strings.Contains(err.Error(), words) {
				t.Errorf("%v; want: %s", err, words)
			}
		}
		fails("is alive", &clusterpb.ConfirmRecoveryRequest{Plan: "p", LostNodes: []uint64{5}})
		fails("there is no node 77", &clusterpb.ConfirmRecoveryRequest{Plan: "p",
			LostNodes: []uint64{77}})
		fails("a recovery has a plan's id", &clusterpb.ConfirmRecoveryRequest{LostNodes: []uint64{5}})
		// One partition leaves node 5, and the plan has not heard of it.
		var id uint64
		var from []uint64
		for x, nodes := range f.where() {
			if slices.Contains(nodes, 5) {
				id, from = x, nodes
			}
		}
		f.mu.Lock()
		before := proto.Clone(f.parts[id].d).(*clusterpb.Partition)
		f.mu.Unlock()
		to := uint64(1)
		for slices.Contains(from, to) {
			to++
		}
		if _, err := f.client.MoveReplica(t.Context(), &clusterpb.MoveReplicaRequest{Partition: id,
			FromNode: 5, ToNode: to}); err != nil {
			t.Fatal(err)
		}
		f.await(time.Minute, "the move", func() bool {
			return f.idle() && !slices.Contains(f.where()[id], 5)
		})
		f.kill(5)
		lost := []uint64{5}
		time.Sleep(15 * time.Second) // virtual; its lease runs out
		fails("a majority of them is not lost", &clusterpb.ConfirmRecoveryRequest{Plan: "p",
			LostNodes: lost,
			Partitions: []*clusterpb.RecoveredPartition{{Partition: id, Keyspace: before.Keyspace,
				Node: from[0], Replica: 2000, Membership: before.Membership + 1000,
				KnownMembership: before.Membership}}})
		r, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 5,
			Status: clusterpb.NodeStatus_NODE_MOVING, DryRun: true})
		if err == nil && r.Status == clusterpb.NodeStatus_NODE_GONE {
			t.Error("the plan was refused, and the node is given up")
		}
	})
}

// TestANodeThatAPartitionRecoversOnIsKept: a node that is being decommissioned, and that the table
// knows no replica on, does not go while a confirmed recovery says that a partition goes on there.
func TestANodeThatAPartitionRecoversOnIsKept(t *testing.T) {
	inFleet(t, []string{"", "", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		var id uint64
		var on []uint64
		for id, on = range f.where() {
		}
		at := uint64(1)
		for slices.Contains(on, at) {
			at++
		}
		for _, node := range []uint64{on[0], on[1], at} {
			f.kill(node)
		}
		record := f.recoverOn(id, at)
		time.Sleep(time.Minute) // virtual; the dead count as dead
		if _, err := f.client.ConfirmRecovery(t.Context(), &clusterpb.ConfirmRecoveryRequest{Plan: "p",
			LostNodes: on[:2], Partitions: []*clusterpb.RecoveredPartition{record}}); err != nil {
			t.Fatal(err)
		}
		is := func() clusterpb.NodeStatus {
			r, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: at,
				Status: clusterpb.NodeStatus_NODE_MOVING})
			if err != nil {
				t.Fatal(err)
			}
			return r.Status
		}
		is()
		time.Sleep(5 * time.Minute) // virtual
		if now := is(); now != clusterpb.NodeStatus_NODE_MOVING {
			t.Fatalf("node %d, on which partition %d goes on, is %v", at, id, now)
		}
		f.restart(at)
		f.await(10*time.Minute, "it has given its replica to others, and is gone", func() bool {
			return is() == clusterpb.NodeStatus_NODE_GONE && f.sound(3)
		})
	})
}
