package server

import (
	"context"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A write of the core that is slow meets what was decided meanwhile. A node that was let go is
// named by nothing: not by a partition of a keyspace that was being made, nor by an operator.
func TestNothingComesToANodeThatWasLetGo(t *testing.T) {
	leave := func(t *testing.T, f *fleet, node uint64) {
		t.Helper()
		if _, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: node,
			Status: clusterpb.NodeStatus_NODE_MOVING}); err != nil {
			t.Fatal(err)
		}
	}
	t.Run("a new keyspace", func(t *testing.T) {
		inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
			time.Sleep(time.Minute) // virtual
			c.hold(meta.PartitionPrefix)
			if _, err := f.client.CreateKeyspace(t.Context(), hash("x", 6, 1)); err != nil {
				t.Fatal(err)
			}
			f.await(time.Minute, "the partitions are written", c.holding)
			leave(t, f, 2)
			time.Sleep(5 * time.Second) // virtual
			c.release()
			f.await(time.Minute, "the keyspace is made", func() bool {
				return keyspaceOf(t, f.client, "x").Keyspace.State == clusterpb.KeyspaceState_ACTIVE
			})
			f.await(time.Minute, "the node is gone", func() bool {
				r, err := f.client.ListNodes(t.Context(), &clusterpb.ListNodesRequest{})
				return err == nil && r.Nodes[1].Status == clusterpb.NodeStatus_NODE_GONE
			})
			for _, p := range partitionsIn(t, f.client, "x") {
				if steps.ReplicaAt(p.Partition, 2) != nil {
					t.Errorf("partition %d was made on node 2, which is gone", p.Partition.Id)
				}
			}
		})
	})
	t.Run("what was planned", func(t *testing.T) {
		inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(hash("x", 1, 3))
			from := f.where()[100]
			to := 1 + 2 + 3 + 4 - from[0] - from[1] - from[2]
			time.Sleep(time.Minute) // virtual
			leave(t, f, to)
			time.Sleep(10 * time.Second) // virtual
			leader := c.members[0].server
			id := partitionsIn(t, f.client, "x")[0].Partition
			if err := leader.operators.BeginProposed(t.Context(), []planner.Operator{{Kind: planner.Replace, Partition: 100,
				Keyspace: keys.KeyspaceID(id.Keyspace), Add: keys.NodeID(to), Remove: keys.NodeID(from[0]),
				Steps: []planner.Step{{Epoch: planner.Epoch{Generation: id.Generation,
					Membership: id.Membership}}}}}); err != nil {
				t.Fatal(err)
			}
			if !f.idle() {
				t.Errorf("an operator adds a replica on node %d, which is gone", to)
			}
		})
	})
}

// Settings whose write is applied after the caller's time was up hold when that is asked
// for again.
func TestSettingsThatWereAppliedLateHold(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 4, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		pause := &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{Paused: proto.Bool(true)}}
		c.hold(meta.SettingsKey)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := f.client.SetPlacement(ctx, pause); err == nil {
			t.Fatal("it was answered before it was applied")
		}
		time.Sleep(time.Second) // virtual
		c.release()
		time.Sleep(time.Second) // virtual
		if r, err := f.client.SetPlacement(t.Context(), pause); err != nil || !r.Settings.GetPaused() {
			t.Fatalf("again: %v, %v", r, err)
		}
		before := f.where()
		f.kill(2)
		time.Sleep(10 * time.Minute) // virtual
		if !sameWhere(before, f.where()) {
			t.Error("replicas moved although placement is paused")
		}
	})
}

// A partition rests after a change for as long as was asked for, however long that is.
func TestALongPause(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 6, 3))
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{PauseMillis: proto.Uint64(2 * 3_600_000)}}); err != nil {
			t.Fatal(err)
		}
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		before := f.where()
		for id, nodes := range before {
			if _, err := f.client.TransferLeader(t.Context(), &clusterpb.TransferLeaderRequest{
				Partition: id, ToNode: nodes[id%3]}); err != nil {
				t.Fatal(err)
			}
		}
		f.await(time.Minute, "the leaders are changed", f.idle)
		f.add("")
		f.add("")
		time.Sleep(110 * time.Minute) // virtual
		if !sameWhere(before, f.where()) {
			t.Error("replicas were moved for balance before the pause was over")
		}
		f.await(30*time.Minute, "they are moved afterwards", func() bool {
			return !sameWhere(before, f.where())
		})
	})
}

// Decommissionings that are asked for at once are judged one after the other.
func TestDecommissioningsAtOnce(t *testing.T) {
	for range 20 {
		inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
			f.create(hash("x", 4, 3))
			time.Sleep(time.Minute) // virtual
			errs := make(chan error, 4)
			for node := range uint64(4) {
				go func() {
					_, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{
						Node: node + 1, Status: clusterpb.NodeStatus_NODE_MOVING})
					errs <- err
				}()
			}
			taken := 0
			for range 4 {
				if err := <-errs; err == nil {
					taken++
				}
			}
			if taken != 1 {
				t.Errorf("%d of four nodes can be decommissioned, want one", taken)
			}
		})
	}
}
