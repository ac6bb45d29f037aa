package planner_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// three are small partitions side by side, of which the first two are merged by hand.
func three(t *testing.T, change func(ps []planner.Partition)) *world {
	t.Helper()
	w := cluster(t, 3, planner.Settings{Merges: true})
	ps := []planner.Partition{on(1, 1, 2, 3), on(2, 1, 2, 3), on(3, 1, 2, 3)}
	for i := range ps {
		if i > 0 {
			ps[i-1].Right, ps[i].Left, ps[i].SplitFrom = ps[i].ID, ps[i-1].ID, 1<<40
		}
	}
	change(ps)
	for _, p := range ps {
		w.must(w.setPartition(p))
	}
	return w
}

// mergesAt lets time go by in steps of ten seconds, without a report, until a merge is proposed.
func (w *world) mergesAt(t *testing.T, limit time.Duration) time.Duration {
	t.Helper()
	for began := w.now; w.now.Sub(began) <= limit; w.now = w.now.Add(10 * time.Second) {
		if ops := w.asFresh(t).Operators; len(ops) > 0 && ops[0].Kind == planner.Merge {
			return w.now.Sub(began)
		}
	}
	t.Fatalf("no merge in %s", limit)
	return 0
}

// What has merged becomes calm as time goes by, whether or not its leader reports again.
func TestMergesWhenCalmForLongEnough(t *testing.T) {
	w := three(t, func(ps []planner.Partition) { ps[0].Measured = 4 * time.Minute })
	w.merge(planner.Operator{Partition: 1, Right: 2})
	if at := w.mergesAt(t, time.Hour); at != 6*time.Minute {
		t.Errorf("it merges after %s, and has been calm for four minutes", at)
	}
}

// What it cost before it merged counts for ten minutes, and then no more.
func TestMergesWhenPeaksArePast(t *testing.T) {
	w := three(t, func(ps []planner.Partition) {
		ps[0].Growth.Peak, ps[1].Growth.Peak = planner.Core/10, planner.Core/10
	})
	w.merge(planner.Operator{Partition: 1, Right: 2})
	p := w.partitions[1]
	p.Measured = 10 * time.Minute
	w.must(w.setPartition(p)) // all there is to report of one that is idle
	if at := w.mergesAt(t, time.Hour); at != 10*time.Minute {
		t.Errorf("it merges after %s", at)
	}
}

// Where a neighbour has to be moved first and the core does not begin that, it is proposed again.
func TestAlignsUntilItIsBegun(t *testing.T) {
	w := cluster(t, 4, planner.Settings{Merges: true})
	left, right := neighbours()
	right.Replicas[2].Node, left.Bytes = 4, 2<<20 // the right one moves, for it is smaller
	w.must(w.setPartition(left))
	w.must(w.setPartition(right))
	for i := range 3 {
		ops := w.asFresh(t).Operators
		if len(ops) != 1 || ops[0].Reason.Cause != planner.Misaligned || ops[0].Partition != 2 {
			t.Fatalf("step %d: %v: want p2 to be moved", i, ops)
		}
		w.inFlight = nil
		w.now = w.now.Add(10 * time.Second)
	}
}

// A new end for which no node was better goes to one when that has become better, although nothing
// of the end itself has changed.
func TestNewEndFollowsTheLoads(t *testing.T) {
	w := cluster(t, 3, planner.Settings{LeastLoad: planner.Core})
	end := on(1, 1, 2, 3)
	end.SplitFrom, end.Resized, end.LeaderLoad = 1<<40, w.now, planner.Core/8
	end.Growth.Ascending = 900
	w.must(w.setPartition(end))
	other := []planner.Partition{on(2, 1, 2, 3), on(3, 2, 1, 3), on(4, 3, 1, 2)}
	for i, load := range []planner.Cores{planner.Core / 8, planner.Core / 4, planner.Core / 4} {
		other[i].LeaderLoad = load
		w.must(w.setPartition(other[i]))
	}
	if ops := w.asFresh(t).Operators; len(ops) != 0 {
		t.Fatalf("all have as much: %v", ops)
	}
	w.now = w.now.Add(time.Minute)
	other[2].LeaderLoad = 0
	w.must(w.setPartition(other[2]))
	ops := w.asFresh(t).Operators
	if len(ops) != 1 || ops[0].Reason.Cause != planner.NewTail || ops[0].Lead != keys.NodeID(3) {
		t.Fatalf("node 3 has nothing to do: %v", ops)
	}
	w.inFlight = nil
	w.now = w.now.Add(state.TailFor)
	if ops := w.asFresh(t).Operators; len(ops) != 0 {
		t.Errorf("it is no new end any more: %v", ops)
	}
}
