package planner_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
	"pgregory.net/rapid"
)

// mostLeft is how often a replica may leave a node for balance and come back, on the way to rest.
// Others move meanwhile, so that once or twice is no sign of a circle.
const mostLeft = 3

// Whatever the cluster: where loads stay as they are, it comes to rest, no partition goes round in
// circles on the way, and once it rests it goes on resting.
func TestComesToRest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, planner.Settings{LeastBytes: 64 << 20, LeastLoad: planner.Core / 100})
		g := &generator{T: t, world: w}
		nodes := rapid.IntRange(3, 12).Draw(t, "nodes")
		for i := range nodes {
			w.must(w.setNode(planner.Node{ID: keys.NodeID(i + 1), Alive: true,
				Since: w.now.Add(-time.Hour), Processors: planner.Core,
				Region:       rapid.SampledFrom([]string{"eu", "us"}).Draw(t, "region"),
				Zone:         rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "zone"),
				DiskCapacity: rapid.SampledFrom([]int64{32 << 30, 64 << 30}).Draw(t, "capacity")}))
		}
		w.must(w.setKeyspace(planner.Keyspace{ID: 1, Name: "a", Replicas: 3}))
		g.keyspace(2)
		for i := range rapid.IntRange(1, 60).Draw(t, "partitions") {
			p := planner.Partition{ID: keys.PartitionID(i + 1), Measured: time.Hour,
				Epoch:    planner.Epoch{1, 1},
				Keyspace: keys.KeyspaceID(rapid.IntRange(1, 2).Draw(t, "keyspace"))}
			p = g.report(p)
			p.Ended = time.Time{}
			for j := range p.Replicas {
				p.Replicas[j].Role, p.Replicas[j].Damage = planner.Voter, planner.Sound
			}
			p.Leader, p.Wanted = p.Replicas[0].Node, p.Replicas[0].Node
			w.must(w.setPartition(p))
		}
		left := map[[2]uint64]int{}
		for step := 0; ; step++ {
			w.now = w.now.Add(11 * time.Minute)
			proposal := w.step()
			if len(proposal.Operators) == 0 {
				break
			}
			if step == 200 {
				t.Fatalf("no rest after %d steps: %s\n%s", step, show(proposal), w.table())
			}
			for _, op := range proposal.Operators {
				if op.Reason.Cause >= planner.DiskFilling && op.Kind == planner.Replace {
					left[[2]uint64{uint64(op.Partition), uint64(op.Remove)}]++
					if left[[2]uint64{uint64(op.Partition), uint64(op.Add)}] > mostLeft {
						t.Fatalf("%s, which it left for balance %d times", op.String(), mostLeft+1)
					}
				}
				w.finish(op)
			}
			w.inFlight = nil
		}
		for range 3 {
			w.now = w.now.Add(11 * time.Minute)
			if proposal := w.step(); len(proposal.Operators) > 0 {
				t.Fatalf("at rest, and then: %s", show(proposal))
			}
		}
	})
}
