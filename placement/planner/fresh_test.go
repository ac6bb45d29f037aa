package planner_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// asFresh takes a step, and compares what is proposed and all sums with those of a State that is
// told everything at once.
func (w *world) asFresh(t *testing.T) planner.Proposal {
	t.Helper()
	for _, n := range w.nodes {
		w.must(w.setNode(n)) // all nodes report, so that both know as much of their disks
	}
	fresh := w.fresh()
	want, got := fresh.proposer.Step(w.now, w.inFlight), w.step()
	if !reflect.DeepEqual(want.Operators, got.Operators) {
		t.Fatalf("fresh:\n%sincremental:\n%s", show(want), show(got))
	}
	if differ := w.compareSums(fresh); differ != "" {
		t.Fatal(differ)
	}
	return got
}

// The halves of a partition cost what it has cost until they are measured, to a State that saw it
// split and to one that is told of them.
func TestSplitAsFresh(t *testing.T) {
	w := cluster(t, 4, planner.Settings{})
	p := on(1, 1, 2, 3)
	p.LeaderLoad, p.FollowerLoad = planner.Core, planner.Core/4
	p.Growth = planner.Growth{Sustained: planner.Core, Peak: planner.Core,
		ByLoad: &planner.SplitPoint{Key: planner.Key("m"), Left: 400, Right: 600}}
	w.must(w.setPartition(p))
	ops := w.asFresh(t).Operators
	if len(ops) != 1 || ops[0].Kind != planner.Split {
		t.Fatalf("%v: want a split", ops)
	}
	w.finish(ops[0])
	w.inFlight = nil
	w.asFresh(t)
	if p, q := w.partitions[1], w.partitions[2]; p.LeaderLoad != planner.Core*4/10 ||
		q.LeaderLoad != planner.Core*6/10 {
		t.Errorf("the halves cost %s and %s", p.LeaderLoad, q.LeaderLoad)
	}
	w.now = w.now.Add(time.Minute)
	w.asFresh(t)
}

// So does what has merged.
func TestMergeAsFresh(t *testing.T) {
	w := cluster(t, 4, planner.Settings{Merges: true})
	left, right := neighbours()
	left.LeaderLoad, right.LeaderLoad = planner.Core/20, planner.Core/40
	w.must(w.setPartition(left))
	w.must(w.setPartition(right))
	ops := w.asFresh(t).Operators
	if len(ops) != 1 || ops[0].Kind != planner.Merge {
		t.Fatalf("%v: want a merge", ops)
	}
	w.finish(ops[0])
	w.inFlight = nil
	w.asFresh(t)
	if p := w.partitions[keys.PartitionID(1)]; p.LeaderLoad != planner.Core/20+planner.Core/40 {
		t.Errorf("what they have become costs %s", p.LeaderLoad)
	}
}

// compareSums compares the sums that are kept with those of a fresh State; empty: they are equal.
func (w *world) compareSums(fresh *rooms) string {
	for i := range w.state.Nodes {
		got := &w.state.Nodes[i]
		id := got.Told.ID
		j := fresh.state.NodeIndex(id)
		if j == state.NoNode {
			continue // named by a descriptor that has been replaced
		}
		want := &fresh.state.Nodes[j]
		if got.Sum != want.Sum || got.OtherBytes != want.OtherBytes || got.Pending != want.Pending ||
			got.Receiving != want.Receiving || got.Sending != want.Sending ||
			got.Transfers != want.Transfers || got.Resizing != want.Resizing ||
			len(got.Partitions) != len(want.Partitions) {
			return fmt.Sprintf("%s: sums %v, other %d, pending %d, %d %d %d %d; "+
				"fresh %v, %d, %d, %d %d %d %d", id, got.Sum, got.OtherBytes, got.Pending, got.Receiving,
				got.Sending, got.Transfers, got.Resizing, want.Sum, want.OtherBytes, want.Pending,
				want.Receiving, want.Sending, want.Transfers, want.Resizing)
		}
		if zone, same := w.state.Zones[got.Zone], fresh.state.Zones[want.Zone]; zone != same {
			return fmt.Sprintf("zone of %s: %+v, fresh %+v", id, zone, same)
		}
	}
	return ""
}
