package planner_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
	"pgregory.net/rapid"
)

// The same where little is broken, so that partitions come to be split and merged, by the planner
// and by hand, one after the other, while leaders change and have measured nothing yet.
func TestGrowingAsFresh(t *testing.T) {
	ends := map[planner.Kind]int{}
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, planner.Settings{LeastBytes: 256 << 20, LeastLoad: planner.Core / 2,
			NodeSplits: 2, Merges: rapid.IntRange(0, 3).Draw(t, "merges") > 0,
			SplitPause: time.Duration(rapid.IntRange(1, 120).Draw(t, "pause")) * time.Second})
		g := &generator{T: t, world: w}
		for i := range rapid.IntRange(3, 6).Draw(t, "nodes") {
			w.must(w.setNode(planner.Node{ID: keys.NodeID(i + 1), Zone: string(rune('a' + i)),
				Alive: true, Since: w.now.Add(-time.Hour), Processors: 4 * planner.Core}))
		}
		w.must(w.setKeyspace(planner.Keyspace{ID: 1, Name: "a", MergeSize: 512 << 20,
			SplitSize: 1 << 30, Replicas: rapid.SampledFrom([]int{1, 3}).Draw(t, "factor")}))
		for i := range rapid.IntRange(1, 12).Draw(t, "partitions") {
			g.last++
			p := planner.Partition{ID: g.last, Keyspace: 1, Epoch: planner.Epoch{1, 1},
				SplitFrom: 1 << 40}
			if i > 0 {
				left := w.partitions[p.ID-1]
				p.Left, left.Right = left.ID, p.ID
				w.must(w.setPartition(left))
			}
			ids := slices.Sorted(maps.Keys(w.nodes))
			for _, id := range rapid.Permutation(ids).Draw(t, "on")[:w.keyspaces[1].Replicas] {
				p.Replicas = append(p.Replicas, planner.Replica{Node: id})
			}
			w.must(w.setPartition(g.reportSound(p)))
		}
		for range rapid.IntRange(4, 20).Draw(t, "steps") {
			for range rapid.IntRange(1, 6).Draw(t, "changes") {
				g.grow(ends)
			}
			g.step()
		}
	})
	t.Logf("operators that were carried out: %v", ends)
}

// reportSound draws what the leader of a partition reports, and which one leads.
func (g *generator) reportSound(p planner.Partition) planner.Partition {
	p.Replicas = slices.Clone(p.Replicas)
	p.Measured = rapid.SampledFrom([]time.Duration{0, 30 * time.Second, 5 * time.Minute,
		time.Hour, time.Hour}).Draw(g.T, "measured")
	p.Bytes = rapid.SampledFrom([]int64{1, 8 << 20, 100 << 20, 300 << 20, 1 << 30}).Draw(g.T, "bytes")
	p.LeaderLoad = rapid.SampledFrom([]planner.Cores{0, 1001, planner.Core / 10,
		planner.Core/4 + 1, planner.Core/2 + 3}).Draw(g.T, "load")
	p.FollowerLoad = p.LeaderLoad / 4
	p.Leader = rapid.SampledFrom(p.Replicas).Draw(g.T, "leader").Node
	if p.Wanted = p.Leader; rapid.IntRange(0, 5).Draw(g.T, "without a leader") == 0 {
		p.Leader = 0
	}
	p.Growth = planner.Growth{}
	if rapid.Bool().Draw(g.T, "calm") {
		p.LeaderLoad, p.FollowerLoad = p.LeaderLoad/64, p.FollowerLoad/64
		p.Growth.Peak = planner.Cores(rapid.IntRange(0, 100_000).Draw(g.T, "peak"))
		return p
	}
	p.Growth.Sustained = p.LeaderLoad
	p.Growth.Peak = p.LeaderLoad
	point := func() *planner.SplitPoint {
		left := rapid.IntRange(0, 1000).Draw(g.T, "left")
		return &planner.SplitPoint{Key: planner.Key("m"), Left: left, Right: 1000 - left}
	}
	if rapid.Bool().Draw(g.T, "key by load") {
		p.Growth.ByLoad = point()
	}
	if rapid.Bool().Draw(g.T, "key by size") {
		p.Growth.BySize = point()
	}
	p.Growth.Ascending = rapid.SampledFrom([]int{0, 0, 100, 900}).Draw(g.T, "ascending")
	return p
}

// grow does one thing that may happen between two steps.
func (g *generator) grow(ends map[planner.Kind]int) {
	w := g.world
	ids := slices.Sorted(maps.Keys(w.partitions))
	some := func() planner.Partition {
		return w.partitions[rapid.SampledFrom(ids).Draw(g.T, "partition")]
	}
	switch rapid.SampledFrom([]string{"ends", "ends", "ends", "report", "report", "merge",
		"node"}).Draw(g.T, "change") {
	case "report":
		w.must(w.setPartition(g.reportSound(some())))
	case "node":
		n := w.nodes[rapid.SampledFrom(slices.Sorted(maps.Keys(w.nodes))).Draw(g.T, "node")]
		if n.Alive = !n.Alive; n.Alive {
			n.Since = w.now.Add(-time.Duration(rapid.IntRange(0, 60).Draw(g.T, "since")) * time.Second)
		} else {
			n.Since = w.now
		}
		w.must(w.setNode(n))
	case "merge":
		p := some()
		q, ok := w.partitions[p.Right]
		busy := slices.ContainsFunc(w.inFlight, func(f planner.InFlight) bool {
			return f.Partition == p.ID || f.Partition == q.ID || f.Right == p.ID || f.Right == q.ID &&
				q.ID != 0
		})
		if ok && !busy {
			w.merge(planner.Operator{Partition: p.ID, Right: q.ID})
		}
	case "ends":
		if len(g.started) == 0 {
			return
		}
		// Any may end first.
		i := rapid.IntRange(0, len(g.started)-1).Draw(g.T, "operator")
		g.started[0], g.started[i] = g.started[i], g.started[0]
		op := g.started[0]
		w.childFirst = rapid.Bool().Draw(g.T, "right part first")
		if g.end(rapid.IntRange(0, 4).Draw(g.T, "success") > 0) {
			ends[op.Kind]++
		}
	}
}
