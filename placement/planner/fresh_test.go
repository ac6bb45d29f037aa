package planner

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// asFresh takes a step, and compares what is proposed and all sums with those of a State that is
// told everything at once.
func (w *world) asFresh(t *testing.T) Proposal {
	t.Helper()
	for _, n := range w.nodes {
		w.must(w.setNode(n)) // all nodes report, so that both know as much of their disks
	}
	fresh := w.fresh()
	want, got := fresh.Step(w.now, w.flights), w.step()
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
	w := cluster(t, 4, Settings{})
	p := on(1, 1, 2, 3)
	p.LeaderLoad, p.FollowerLoad = Core, Core/4
	p.Growth = Growth{Sustained: Core, Peak: Core,
		ByLoad: &SplitPoint{Key: Key("m"), Left: 400, Right: 600}}
	w.must(w.setPartition(p))
	ops := w.asFresh(t).Operators
	if len(ops) != 1 || ops[0].Kind != Split {
		t.Fatalf("%v: want a split", ops)
	}
	w.finish(ops[0])
	w.flights = nil
	w.asFresh(t)
	if p, q := w.partitions[1], w.partitions[2]; p.LeaderLoad != Core*4/10 ||
		q.LeaderLoad != Core*6/10 {
		t.Errorf("the halves cost %s and %s", p.LeaderLoad, q.LeaderLoad)
	}
	w.now = w.now.Add(time.Minute)
	w.asFresh(t)
}

// So does what has merged.
func TestMergeAsFresh(t *testing.T) {
	w := cluster(t, 4, Settings{Merges: true})
	left, right := neighbours()
	left.LeaderLoad, right.LeaderLoad = Core/20, Core/40
	w.must(w.setPartition(left))
	w.must(w.setPartition(right))
	ops := w.asFresh(t).Operators
	if len(ops) != 1 || ops[0].Kind != Merge {
		t.Fatalf("%v: want a merge", ops)
	}
	w.finish(ops[0])
	w.flights = nil
	w.asFresh(t)
	if p := w.partitions[keys.PartitionID(1)]; p.LeaderLoad != Core/20+Core/40 {
		t.Errorf("what they have become costs %s", p.LeaderLoad)
	}
}

// compareSums compares the sums that are kept with those of a fresh State; empty: they are equal.
func (w *world) compareSums(fresh *State) string {
	for id, i := range w.state.nodeIndex {
		j, ok := fresh.nodeIndex[id]
		if !ok {
			continue // named by a descriptor that has been replaced
		}
		got, want := &w.state.nodes[i], &fresh.nodes[j]
		if got.sum != want.sum || got.other != want.other || got.pending != want.pending ||
			got.receiving != want.receiving || got.sending != want.sending ||
			got.transfers != want.transfers || got.splitting != want.splitting ||
			len(got.list) != len(want.list) {
			return fmt.Sprintf("%s: sums %v, other %d, pending %d, %d %d %d %d; "+
				"fresh %v, %d, %d, %d %d %d %d", id, got.sum, got.other, got.pending, got.receiving,
				got.sending, got.transfers, got.splitting, want.sum, want.other, want.pending,
				want.receiving, want.sending, want.transfers, want.splitting)
		}
		if zone, same := w.state.zones[got.zone], fresh.zones[want.zone]; zone != same {
			return fmt.Sprintf("zone of %s: %+v, fresh %+v", id, zone, same)
		}
	}
	return ""
}
