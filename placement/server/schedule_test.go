package server

import (
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/facts"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A node that stays silent is replaced after the repair delay and not before, however often the
// core changes its leader meanwhile; and one that comes back in time is not.
func TestASilentNodeIsReplaced(t *testing.T) {
	inFleet(t, []string{"a", "b", "c", "c"}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 8, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		before := f.where()
		f.kill(2)
		time.Sleep(4 * time.Minute) // virtual
		f.restart(2)
		time.Sleep(3 * time.Minute) // virtual
		if !sameWhere(before, f.where()) {
			t.Fatal("a node that was away for 4 minutes was replaced")
		}
		f.kill(2)
		for i := range 4 {
			time.Sleep(time.Minute) // virtual
			c.elect(c.members[(i+1)%3])
		}
		if !sameWhere(before, f.where()) {
			t.Fatal("the node was replaced before the delay")
		}
		f.await(2*time.Minute, "the node is replaced after 5 minutes in all", func() bool {
			return f.sound(3) && f.idle()
		})
		if n := f.holds()[2]; n != 0 {
			t.Errorf("the lost node still has %d replicas", n)
		}
		// Nothing goes back and forth afterwards.
		after := f.where()
		time.Sleep(20 * time.Minute) // virtual
		if !sameWhere(after, f.where()) {
			t.Error("replicas moved although nothing was wrong")
		}
		found := slices.ContainsFunc(events(t, f), func(e *clusterpb.Event) bool {
			return e.FromNode == 2 && e.Outcome == "done" && strings.Contains(e.Reason, "silent for 5m")
		})
		if !found {
			t.Error("no event tells of it")
		}
	})
}

// A replica that is broken is replaced at once, and so is one on a node whose directory was lost.
func TestDamageIsRepairedAtOnce(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 6, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		var broken uint64
		for id, nodes := range f.where() {
			if slices.Contains(nodes, 1) {
				broken = id
			}
		}
		f.mu.Lock()
		f.nodes[1].broken = []uint64{broken}
		f.mu.Unlock()
		f.await(time.Minute, "the broken replica is replaced", func() bool {
			return f.sound(3) && f.idle() && !slices.Contains(f.where()[broken], 1)
		})
		f.kill(3)
		f.register(9999, "node1002:1", "")
		f.await(2*time.Minute, "what was on the lost directory is replaced", func() bool {
			return f.sound(3) && f.idle() && f.holds()[3] == 0
		})
	})
}

// A node whose address was given to another directory by mistake, and that answers at once, is not
// taken for lost when it is away for a moment later.
func TestADisplacedNodeThatAnswersAtOnce(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 6, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		f.register(9999, "node1002:1", "")
		f.beat(t.Context(), f.nodes[3])
		f.kill(5)
		f.await(time.Minute, "it is as before", func() bool { return f.sound(3) && f.idle() })
		before := f.holds()[3]
		f.kill(3)
		time.Sleep(time.Minute) // virtual
		f.restart(3)
		time.Sleep(time.Minute) // virtual
		if now := f.holds()[3]; now != before {
			t.Errorf("node 3 has %d replicas of %d after it was away for a minute", now, before)
		}
	})
}

// A decommissioned node ends without a replica and is refused; what cannot be done is refused with
// its reason and changes nothing; what was begun can be taken back.
func TestDecommission(t *testing.T) {
	inFleet(t, []string{"", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 10, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		set := func(node uint64, to clusterpb.NodeStatus, dry bool) (*clusterpb.SetNodeStatusResponse,
			error) {
			return f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: node,
				Status: to, DryRun: dry})
		}
		const moving = clusterpb.NodeStatus_NODE_MOVING
		if r, err := set(1, moving, true); err != nil || len(r.Obstacles) != 0 || r.Replicas == 0 ||
			r.Status != clusterpb.NodeStatus_NODE_ACTIVE {
			t.Fatalf("dry run: %v, %v", r, err)
		}
		if _, err := set(1, moving, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second) // virtual
		if _, err := set(1, clusterpb.NodeStatus_NODE_ACTIVE, false); err != nil {
			t.Fatal(err)
		}
		f.await(2*time.Minute, "it is taken back", func() bool { return f.sound(3) && f.idle() })
		for _, node := range []uint64{1, 2} {
			if _, err := set(node, moving, false); err != nil {
				t.Fatal(err)
			}
		}
		_, err := set(3, moving, false)
		if err == nil || !strings.Contains(err.Error(),
			"keyspace x wants 3 replicas, 2 nodes would be left") {
			t.Errorf("a third one: %v", err)
		}
		f.await(10*time.Minute, "both are gone", func() bool {
			a, err := set(1, moving, true)
			b, err2 := set(2, moving, true)
			return err == nil && err2 == nil && a.Status == clusterpb.NodeStatus_NODE_GONE &&
				b.Status == clusterpb.NodeStatus_NODE_GONE
		})
		if h := f.holds(); h[1]+h[2] != 0 || !f.sound(3) {
			t.Errorf("gone with replicas: %v", h)
		}
		f.await(time.Minute, "it is refused", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.nodes[1].refused != nil
		})
		if err := f.nodes[1].refused; !strings.Contains(err.Error(), "decommissioned") {
			t.Errorf("a heartbeat of a node that is gone: %v", err)
		}
		if _, err := set(1, clusterpb.NodeStatus_NODE_ACTIVE, false); err == nil {
			t.Error("a node that is gone was made active")
		}
		// Its directory may have forgotten the node's id.
		if _, err := f.client.Register(t.Context(), &clusterpb.RegisterNodeRequest{
			Server: f.nodes[1].server, Address: "node1000:1"}); err == nil ||
			!strings.Contains(err.Error(), "decommissioned") {
			t.Errorf("a node that is gone registers: %v", err)
		}
	})
}

// A keyspace that has just been given more replicas keeps the nodes that it needs, although the
// planner has not heard of it.
func TestDecommissionRightAfterAlter(t *testing.T) {
	inFleet(t, []string{"", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 4, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		v, err := c.leader.server.meta.View(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.client.AlterKeyspace(t.Context(), &clusterpb.AlterKeyspaceRequest{Name: "x",
			ReplicationFactor: 5}); err != nil {
			t.Fatal(err)
		}
		// The planner is where it was before.
		before, err := meta.LoadKeyspaces(v)
		if err != nil {
			t.Fatal(err)
		}
		ks, err := facts.Keyspace(before[0].Keyspace)
		if err != nil {
			t.Fatal(err)
		}
		planner := &c.leader.server.scheduler
		planner.mu.Lock()
		err = planner.state.SetKeyspace(ks)
		planner.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		_, err = f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 1,
			Status: clusterpb.NodeStatus_NODE_MOVING})
		if want := "keyspace x wants 5 replicas, 4 nodes would be left"; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("decommissioned: %v; want %q", err, want)
		}
	})
}

// A decommissioning says what it waits for also when the node holds nothing: an operator that
// cannot be taken back, because its partition has no leader, may still bring it something.
func TestADecommissioningThatWaitsSaysSo(t *testing.T) {
	inFleet(t, []string{"", "", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		time.Sleep(time.Minute) // virtual
		on := f.where()[100]
		to := uint64(1)
		for slices.Contains(on, to) {
			to++
		}
		f.kill(on[0])
		f.kill(on[1])
		if _, err := f.client.MoveReplica(t.Context(), &clusterpb.MoveReplicaRequest{Partition: 100,
			FromNode: on[0], ToNode: to}); err != nil {
			t.Fatal(err)
		}
		ask := func() *clusterpb.SetNodeStatusResponse {
			r, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: to,
				Status: clusterpb.NodeStatus_NODE_MOVING})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}
		ask()
		time.Sleep(time.Minute) // virtual
		if r := ask(); r.Status != clusterpb.NodeStatus_NODE_MOVING || r.Replicas != 0 ||
			!strings.Contains(r.InTheWay, "partition 100") {
			t.Errorf("it waits without a word: %v", r)
		}
		f.restart(on[0])
		f.restart(on[1])
		f.await(time.Minute, "it is gone", func() bool {
			return ask().Status == clusterpb.NodeStatus_NODE_GONE
		})
	})
}

// A drained node keeps its replicas and leads nothing, and is given nothing new.
func TestDrain(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 9, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		if _, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 2,
			Status: clusterpb.NodeStatus_NODE_DRAINING}); err != nil {
			t.Fatal(err)
		}
		f.await(time.Minute, "it leads nothing", func() bool { return f.leads()[2] == 0 && f.idle() })
		if f.holds()[2] != 9 {
			t.Errorf("a drained node has %d replicas, want 9", f.holds()[2])
		}
		if _, err := f.client.CreateKeyspace(t.Context(), hash("y", 3, 3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual
		if info := keyspaceOf(t, f.client, "y"); info.WaitingFor == "" {
			t.Error("a new keyspace was placed on a drained node")
		}
		if _, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: 2,
			Status: clusterpb.NodeStatus_NODE_ACTIVE}); err != nil {
			t.Fatal(err)
		}
		f.await(30*time.Minute, "it leads again", func() bool { return f.leads()[2] >= 2 })
	})
}

// The replication factor follows the keyspace, up and down, and a transfer sticks.
func TestFactorAndTransfer(t *testing.T) {
	inFleet(t, []string{"", "", "", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 6, 3))
		for _, factor := range []uint32{5, 3, 1, 3} {
			if _, err := f.client.AlterKeyspace(t.Context(), &clusterpb.AlterKeyspaceRequest{Name: "x",
				ReplicationFactor: factor}); err != nil {
				t.Fatal(err)
			}
			f.await(15*time.Minute, "the factor is followed", func() bool {
				return f.sound(int(factor)) && f.idle()
			})
		}
		if _, err := f.client.AlterKeyspace(t.Context(), &clusterpb.AlterKeyspaceRequest{Name: "x",
			Placement: proto.String("zone=nowhere")}); err == nil ||
			!strings.Contains(err.Error(), "do not suffice") {
			t.Errorf("a placement that no node satisfies: %v", err)
		}
		for id, nodes := range f.where() {
			to := nodes[0]
			f.mu.Lock()
			if f.parts[id].leader == to {
				to = nodes[1]
			}
			f.mu.Unlock()
			if _, err := f.client.TransferLeader(t.Context(), &clusterpb.TransferLeaderRequest{
				Partition: id, ToNode: to}); err != nil {
				t.Fatal(err)
			}
			f.await(time.Minute, "it leads", func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return f.parts[id].leader == to && steps.Wanted(f.parts[id].d) == replicaNode(f.parts[id].d, to)
			})
			break
		}
	})
}

// A transfer to a node that would hand the lead back, or that cannot lead, is refused at once.
func TestATransferToASlowOrFullDisk(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		for id, nodes := range f.where() {
			f.mu.Lock()
			leader := f.parts[id].leader
			f.mu.Unlock()
			to := nodes[0]
			if to == leader {
				to = nodes[1]
			}
			transfer := func() error {
				_, err := f.client.TransferLeader(t.Context(), &clusterpb.TransferLeaderRequest{
					Partition: id, ToNode: to})
				return err
			}
			for says, reported := range map[string]*clusterpb.NodeStats{
				"cannot lead at present": {DiskFull: true}, "its disk is slow": {DiskSlow: true}} {
				f.report(to, reported)
				if err := transfer(); err == nil || !strings.Contains(err.Error(), says) {
					t.Errorf("want a refusal that says %q: %v", says, err)
				}
			}
			// The leader is as slow.
			f.report(to, &clusterpb.NodeStats{DiskSlow: true})
			f.report(leader, &clusterpb.NodeStats{DiskSlow: true})
			if err := transfer(); err != nil {
				t.Error(err)
			}
		}
	})
}

func replicaNode(d *clusterpb.Partition, node uint64) uint64 {
	for _, r := range d.Replicas {
		if r.Node == node {
			return r.Replica
		}
	}
	return 0
}

// A node that gets replicas and dies meanwhile holds nothing up: they go to another one.
func TestATargetThatDies(t *testing.T) {
	inFleet(t, []string{"", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 3, 3))
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{Paused: proto.Bool(true)}}); err != nil {
			t.Fatal(err)
		}
		f.await(time.Minute, "nothing is under way", f.idle)
		f.add("")
		f.kill(1)
		time.Sleep(6 * time.Minute) // virtual
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{Paused: proto.Bool(false)}}); err != nil {
			t.Fatal(err)
		}
		f.await(time.Minute, "a repair is under way", func() bool { return !f.idle() })
		f.kill(4)
		time.Sleep(time.Minute) // virtual
		last := f.add("")
		f.await(20*time.Minute, "everything is on the other three", func() bool {
			return f.sound(3) && f.idle()
		})
		if h := f.holds(); h[last] != 3 || h[4] != 0 {
			t.Errorf("replicas %v", h)
		}
	})
}

// A copy that takes long because it is large is not given up; one that does not come to an end is.
func TestALargeCopyHasItsTime(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.mu.Lock()
		f.parts[100].bytes = 4 << 30
		f.copying = time.Hour
		f.mu.Unlock()
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		f.kill(f.where()[100][1])
		f.await(80*time.Minute, "the replica is replaced", func() bool {
			return f.sound(3) && f.idle()
		})
	})
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 1, 3))
		f.mu.Lock()
		f.copying = 1000 * time.Hour
		f.mu.Unlock()
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		f.kill(f.where()[100][1])
		f.await(20*time.Minute, "the copy is given up", func() bool {
			return slices.ContainsFunc(events(t, f), func(e *clusterpb.Event) bool {
				return strings.Contains(e.Outcome, "cancelled: it has not advanced for 1")
			})
		})
	})
}

// While placement is paused nothing is begun, and what is under way goes on.
func TestPause(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 8, 3))
		set := func(change *clusterpb.PlacementSettings) *clusterpb.PlacementSettings {
			r, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{Change: change})
			if err != nil {
				t.Fatal(err)
			}
			return r.Settings
		}
		set(&clusterpb.PlacementSettings{Paused: proto.Bool(true)})
		f.kill(2)
		before := f.where()
		time.Sleep(10 * time.Minute) // virtual
		c.elect(c.members[1])
		time.Sleep(10 * time.Minute) // virtual
		if !sameWhere(before, f.where()) {
			t.Fatal("replicas moved while placement was paused")
		}
		if s := set(&clusterpb.PlacementSettings{Paused: proto.Bool(false),
			NodeSnapshots: proto.Uint32(2)}); s.GetPaused() || s.GetNodeSnapshots() != 2 ||
			s.GetRepairDelayMillis() != 300_000 {
			t.Errorf("settings: %v", s)
		}
		f.await(3*time.Minute, "it goes on", func() bool { return f.sound(3) && f.idle() })
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{NodeSnapshots: proto.Uint32(0)}}); err == nil {
			t.Error("a limit of 0 was taken")
		}
	})
}

// Whichever write the core's leader falls at, before it or after it, the next one brings a
// decommissioning and a repair to their ends.
func TestTheNextLeaderGoesOnWithOperators(t *testing.T) {
	for _, applied := range []bool{false, true} {
		for at, reached := 1, true; reached; at++ {
			inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
				f.create(hash("x", 2, 3))
				time.Sleep(40 * time.Second) // virtual
				c.mu.Lock()
				c.crashAt, c.applied = c.proposed+at, applied
				c.mu.Unlock()
				out := f.where()[100][0]
				if _, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: out,
					Status: clusterpb.NodeStatus_NODE_MOVING}); err != nil {
					t.Fatal(err)
				}
				f.await(5*time.Minute, "the node is gone", func() bool {
					r, err := f.client.SetNodeStatus(t.Context(), &clusterpb.SetNodeStatusRequest{Node: out,
						Status: clusterpb.NodeStatus_NODE_MOVING, DryRun: true})
					return err == nil && r.Status == clusterpb.NodeStatus_NODE_GONE
				})
				f.mu.Lock()
				f.nodes[f.parts[100].d.Replicas[0].Node].broken = []uint64{100}
				f.mu.Unlock()
				f.add("")
				f.await(2*time.Minute, "the broken replica is replaced", func() bool {
					return f.sound(3) && f.idle()
				})
				if n := f.holds()[out]; n != 0 {
					t.Errorf("node %d is gone and holds %d replicas", out, n)
				}
				c.mu.Lock()
				reached = c.proposed >= c.crashAt
				c.mu.Unlock()
			})
			if t.Failed() {
				t.Fatalf("the core's leader fell at proposal %d, applied: %v", at, applied)
			}
			if !reached && at < 20 {
				t.Fatalf("only %d proposals were seen", at)
			}
		}
	}
}

// What was planned before a pause is not begun after it.
func TestNothingIsBegunAfterAPause(t *testing.T) {
	inFleet(t, []string{"", "", "", ""}, func(t *testing.T, c *core, f *fleet) {
		f.create(hash("x", 2, 3))
		f.await(time.Minute, "all is well", func() bool { return f.sound(3) && f.idle() })
		server := c.members[0].server
		planned := func() []planner.Operator {
			why, err := server.scheduler.explainer.Partition(100)
			if err != nil {
				t.Fatal(err)
			}
			return []planner.Operator{{Partition: 100, Keyspace: 1, Kind: planner.Transfer,
				Lead: why.Replicas[1].Node, Steps: []planner.Step{{Epoch: why.Epoch}}}}
		}
		before := planned()
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{Paused: proto.Bool(true)}}); err != nil {
			t.Fatal(err)
		}
		if err := server.operators.BeginProposed(t.Context(), before); err != nil || !f.idle() {
			t.Errorf("it was begun: %v", err)
		}
		if _, err := f.client.SetPlacement(t.Context(), &clusterpb.SetPlacementRequest{
			Change: &clusterpb.PlacementSettings{Paused: proto.Bool(false)}}); err != nil {
			t.Fatal(err)
		}
		if err := server.operators.BeginProposed(t.Context(), before); err != nil || f.idle() {
			t.Errorf("it was not begun when the pause was over: %v", err)
		}
	})
}
