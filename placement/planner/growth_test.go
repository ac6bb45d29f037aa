package planner_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
)

// neighbours are two small partitions side by side.
func neighbours() (left, right planner.Partition) {
	left, right = on(1, 1, 2, 3), on(2, 1, 2, 3)
	left.Right, right.Left, right.SplitFrom = 2, 1, 1
	return left, right
}

// Whether a partition is merged is looked at again when its neighbour has changed, and nothing
// else.
func TestMergeFollowsTheNeighbour(t *testing.T) {
	w := cluster(t, 3, planner.Settings{Merges: true})
	left, right := neighbours()
	right.Bytes = 200 << 20
	w.must(w.setPartition(left))
	w.must(w.setPartition(right))
	if ops := w.step().Operators; len(ops) != 0 {
		t.Fatalf("with a large neighbour: %v", ops)
	}
	right.Bytes = 2 << 20
	w.must(w.setPartition(right))
	ops := w.proposer.Step(w.now, nil).Operators
	if len(ops) != 1 || ops[0].Kind != planner.Merge || ops[0].Right != 2 {
		t.Fatalf("when it is small: %v", ops)
	}
	right.Growth.Peak = planner.Core
	w.must(w.setPartition(right))
	if ops := w.proposer.Step(w.now, nil).Operators; len(ops) != 0 {
		t.Errorf("when it is busy: %v", ops)
	}
	w.must(w.setPartition(left))
	w.state.RemovePartition(2)
	if ops := w.proposer.Step(w.now, nil).Operators; len(ops) != 0 {
		t.Errorf("when it is gone: %v", ops)
	}
}

// Both ends of a merge are left alone while it is in flight, and it counts once.
func TestMergeHoldsBoth(t *testing.T) {
	w := cluster(t, 4, planner.Settings{Merges: true, AllSplits: 2})
	left, right := neighbours()
	right.Replicas[0].Damage = planner.Broken // which would be repaired at once
	w.must(w.setPartition(left))
	w.must(w.setPartition(right))
	merge := []planner.InFlight{{Partition: 1, Right: 2}}
	if ops := w.proposer.Step(w.now, merge).Operators; len(ops) != 0 {
		t.Errorf("beside the merge: %v", ops)
	}
	if w.state.Resizing != 1 || w.state.Working != 1 {
		t.Errorf("it counts as %d and %d", w.state.Resizing, w.state.Working)
	}
	if ops := w.proposer.Step(w.now, nil).Operators; len(ops) != 1 || ops[0].Partition != 2 {
		t.Errorf("after it: %v", ops)
	}
	if w.state.Resizing != 0 {
		t.Errorf("%d are still splitting", w.state.Resizing)
	}
}

// What a partition costs and has counts somewhere from the moment it splits, in whatever order its
// parts are heard of.
func TestLoadOutlivesSplit(t *testing.T) {
	for _, childFirst := range []bool{false, true} {
		w := cluster(t, 3, planner.Settings{})
		parent := on(1, 1, 2, 3)
		parent.LeaderLoad, parent.FollowerLoad, parent.Bytes = planner.Core, planner.Core/4, 300<<20
		parent.Growth = planner.Growth{Sustained: planner.Core,
			ByLoad: &planner.SplitPoint{Key: planner.Key("m"), Left: 700, Right: 300},
			BySize: &planner.SplitPoint{Key: planner.Key("k"), Left: 500, Right: 500}}
		w.must(w.setPartition(parent))
		w.proposer.Step(w.now, nil)
		load := func() planner.Cores {
			sum := int64(0)
			for _, n := range w.state.Nodes {
				sum += n.Sum[planner.ByLoad]
			}
			return planner.Cores(sum)
		}
		before := load()
		child := on(2, 1, 2, 3)
		child.SplitFrom, child.Measured, child.Bytes = 1, 0, 0
		parent.Growth, parent.Measured, parent.Bytes = planner.Growth{}, 0, 150<<20
		parent.LeaderLoad, parent.FollowerLoad = 0, 0
		parent.Epoch.Generation++
		child.Epoch.Generation = parent.Epoch.Generation
		if childFirst {
			w.must(w.setPartition(child))
			w.must(w.setPartition(parent))
		} else {
			w.must(w.setPartition(parent))
			w.must(w.setPartition(child))
		}
		w.proposer.Step(w.now, nil)
		if after := load(); after != before {
			t.Errorf("child first %v: load %s, was %s", childFirst, after, before)
		}
		i, _ := w.state.PartitionIndex(2)
		p := &w.state.Partitions[i]
		if p.LeaderLoad != uint32(planner.Core*3/10) {
			t.Errorf("child first %v: the child costs %s", childFirst, planner.Cores(p.LeaderLoad))
		}
		if p.Bytes < 149<<20 || p.Bytes > 151<<20 {
			t.Errorf("child first %v: the child has %d bytes", childFirst, p.Bytes)
		}
		child.Measured, child.LeaderLoad, child.Bytes = time.Minute, planner.Core/10, 100<<20
		w.must(w.setPartition(child))
		if p.LeaderLoad != uint32(planner.Core/10) || p.Bytes != 100<<20 {
			t.Errorf("what its leader says: %s, %d bytes", planner.Cores(p.LeaderLoad), p.Bytes)
		}
	}
}
