package planner_test

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/range/keys"
	"pgregory.net/rapid"
)

// Whatever happened before: a State that was told of every change and looks only at what is dirty
// proposes what a new State proposes that is told everything at once, in another order.
func TestIncrementalAsFresh(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, planner.Settings{LeastBytes: 64 << 20, NodeInFlight: 2, ZoneInFlight: 4,
			NodeSplits: 2, Merges: rapid.Bool().Draw(t, "merges")})
		g := &generator{T: t, world: w}
		for i := range rapid.IntRange(1, 12).Draw(t, "nodes") {
			g.node(keys.NodeID(i + 1))
		}
		for i := range rapid.IntRange(1, 3).Draw(t, "keyspaces") {
			g.keyspace(keys.KeyspaceID(i + 1))
		}
		for range rapid.IntRange(1, 40).Draw(t, "partitions") {
			g.partition()
		}
		for range rapid.IntRange(1, 8).Draw(t, "steps") {
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				g.change()
			}
			g.step()
		}
	})
}

// step lets time go by, and holds what the State proposes then against what fresh ones do.
func (g *generator) step() {
	g.Helper()
	w := g.world
	// All nodes report, so that both know as much of their disks.
	for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
		w.must(w.setNode(w.nodes[id]))
	}
	w.now = w.now.Add(time.Duration(rapid.IntRange(10, 400).Draw(g.T, "seconds")) * time.Second)
	inFlight := slices.Clone(w.inFlight)
	fresh := w.fresh()
	want := fresh.proposer.Step(w.now, inFlight)
	got := w.step()
	// Whether something is blocked is found out when it has its turn. Until then it waits, so that a
	// fresh State may have more that waits and less that is blocked.
	if !reflect.DeepEqual(want.Operators, got.Operators) {
		g.Fatalf("fresh:\n%sincremental:\n%s%s", show(want), show(got), g.differences(fresh))
	}
	if differ := w.compareSums(fresh); differ != "" {
		g.Fatal(differ)
	}
	if again := w.fresh().proposer.Step(w.now, inFlight); !reflect.DeepEqual(again, want) {
		g.Fatalf("first:\n%ssecond:\n%s", show(want), show(again))
	}
	g.started = append(g.started, got.Operators...)
}

func show(p planner.Proposal) string {
	text := ""
	for _, op := range p.Operators {
		text += op.Detail()
	}
	return fmt.Sprintf("%s%d wait, %d blocked %v\n", text, p.Waiting, p.Blocked, p.FirstBlocked)
}

// generator changes a world at random.
type generator struct {
	*rapid.T
	world   *world
	started []planner.Operator
	last    keys.PartitionID
}

func (g *generator) node(id keys.NodeID) {
	w := g.world
	n, ok := w.nodes[id]
	if !ok {
		n = planner.Node{ID: id, Region: rapid.SampledFrom([]string{"eu", "us"}).Draw(g.T, "region"),
			Zone:         rapid.SampledFrom([]string{"a", "b"}).Draw(g.T, "zone"),
			DiskCapacity: rapid.SampledFrom([]int64{0, 8 << 30, 16 << 30}).Draw(g.T, "capacity"),
			Processors:   4 * planner.Core}
	}
	n.Status = rapid.SampledFrom([]planner.Status{planner.Active, planner.Active, planner.Active,
		planner.Active, planner.Draining, planner.Moving, planner.Gone}).Draw(g.T, "status")
	if alive := rapid.IntRange(0, 5).Draw(g.T, "alive") > 0; !ok || alive != n.Alive {
		n.Alive = alive
		n.Since = w.now.Add(-time.Duration(rapid.IntRange(0, 600).Draw(g.T, "since")) * time.Second)
	}
	n.DiskUsed = rapid.Int64Range(0, 8<<30).Draw(g.T, "used")
	w.must(w.setNode(n))
}

func (g *generator) keyspace(id keys.KeyspaceID) {
	k := planner.Keyspace{ID: id, Name: id.String(),
		Replicas: rapid.SampledFrom([]int{1, 2, 3, 5}).Draw(g.T, "factor")}
	wanted, err := rules.Parse(rapid.SampledFrom([]string{"", "", "region=eu:1",
		"region=us:1,zone=a:1", "zone=a"}).Draw(g.T, "rules"))
	g.world.must(err)
	if wanted.Validate(k.Replicas) == nil {
		k.Rules = wanted
	}
	k.NoAuto = rapid.IntRange(0, 4).Draw(g.T, "no automatic splits") == 0
	k.SplitSize = rapid.SampledFrom([]int64{0, 512 << 20}).Draw(g.T, "split size")
	k.MergeSize = rapid.SampledFrom([]int64{0, 512 << 20}).Draw(g.T, "merge size")
	if rapid.Bool().Draw(g.T, "preference") {
		k.Leaders = rules.Selectors{{Key: "region", Value: "eu"}}
	}
	g.world.must(g.world.setKeyspace(k))
}

func (g *generator) partition() {
	g.last++
	w := g.world
	p := planner.Partition{ID: g.last, Measured: time.Hour, Epoch: planner.Epoch{1, 1},
		Keyspace: rapid.SampledFrom(slices.Sorted(maps.Keys(w.keyspaces))).Draw(g.T, "keyspace")}
	if q, ok := w.partitions[p.ID-1]; ok && q.Keyspace == p.Keyspace {
		p.Left, q.Right = q.ID, p.ID
		w.must(w.setPartition(q))
	}
	w.must(w.setPartition(g.report(p)))
}

// grows draws what a leader says of where its partition grows.
func (g *generator) grows(p *planner.Partition) {
	calm := rapid.IntRange(0, 2).Draw(g.T, "calm") == 0
	p.SplitFrom, p.Resized = 0, time.Time{}
	if rapid.IntRange(0, 3).Draw(g.T, "founded") > 0 {
		p.SplitFrom = 1 << 40 // not known here, so that nothing is inherited
		p.Resized = g.world.now.Add(-time.Duration(rapid.IntRange(0, 1200).Draw(g.T, "resized")) *
			time.Second)
	}
	if p.Growth = (planner.Growth{}); calm {
		p.Bytes >>= 6 // small as well
		return
	}
	p.Growth.Sustained = planner.Cores(rapid.IntRange(0, 600_000).Draw(g.T, "sustained"))
	p.Growth.Peak = p.Growth.Sustained
	part := func() *planner.SplitPoint {
		left := rapid.IntRange(0, 1000).Draw(g.T, "left")
		across := rapid.IntRange(0, min(400, 1000-left)).Draw(g.T, "across")
		return &planner.SplitPoint{Key: planner.Key("m"), Left: left, Right: 1000 - left - across,
			Across: across}
	}
	if rapid.Bool().Draw(g.T, "key by load") {
		p.Growth.ByLoad = part()
	}
	if rapid.Bool().Draw(g.T, "key by size") {
		p.Growth.BySize = part()
	}
	p.Growth.OneKey = rapid.IntRange(0, 4).Draw(g.T, "one key") == 0
	p.Growth.Ascending = rapid.SampledFrom([]int{0, 100, 900}).Draw(g.T, "ascending")
	p.Growth.Hot = rapid.SampledFrom([]int{0, 100, 900}).Draw(g.T, "hot")
}

// report draws what may change of a partition.
func (g *generator) report(p planner.Partition) planner.Partition {
	ids := slices.Sorted(maps.Keys(g.world.nodes))
	p.Replicas = nil
	for _, id := range rapid.SliceOfNDistinct(rapid.SampledFrom(ids), 1, min(5, len(ids)),
		rapid.ID).Draw(g.T, "on") {
		r := planner.Replica{Node: id}
		switch rapid.IntRange(0, 20).Draw(g.T, "replica") {
		case 0:
			r.Role = planner.Learner
		case 1:
			r.Damage = planner.Broken
		case 2:
			r.Damage = planner.Wiped
		case 3:
			r.Role = planner.Incoming
		case 4:
			r.Role = planner.Outgoing
		}
		p.Replicas = append(p.Replicas, r)
	}
	p.Bytes = rapid.Int64Range(0, 1<<30).Draw(g.T, "bytes")
	p.LeaderLoad = planner.Cores(rapid.IntRange(0, 1_000_000).Draw(g.T, "load"))
	p.FollowerLoad = p.LeaderLoad / 4
	p.Leader = rapid.SampledFrom(append(ids, 0)).Draw(g.T, "leader")
	p.Wanted = rapid.SampledFrom(append(ids, 0)).Draw(g.T, "wanted")
	p.Epoch.Membership++
	g.grows(&p)
	if rapid.IntRange(0, 3).Draw(g.T, "moved") == 0 {
		p.Ended = g.world.now
	}
	return p
}

// change does one thing that may happen between two steps.
func (g *generator) change() {
	w := g.world
	ids := slices.Sorted(maps.Keys(w.partitions))
	switch rapid.IntRange(0, 9).Draw(g.T, "change") {
	case 0:
		g.node(rapid.SampledFrom(slices.Sorted(maps.Keys(w.nodes))).Draw(g.T, "node"))
	case 1:
		g.node(keys.NodeID(len(w.nodes) + 1))
	case 2:
		g.keyspace(rapid.SampledFrom(slices.Sorted(maps.Keys(w.keyspaces))).Draw(g.T, "keyspace"))
	case 3:
		g.partition()
	case 4:
		if len(ids) > 0 {
			w.removePartition(rapid.SampledFrom(ids).Draw(g.T, "partition"))
		}
	case 5, 6:
		if len(ids) > 0 {
			p := w.partitions[rapid.SampledFrom(ids).Draw(g.T, "partition")]
			w.must(w.setPartition(g.report(p)))
		}
	default:
		g.end(rapid.Bool().Draw(g.T, "success"))
	}
}

// end ends the oldest operator, and says whether it was carried out.
func (g *generator) end(success bool) bool {
	if len(g.started) == 0 {
		return false
	}
	op := g.started[0]
	g.started = g.started[1:]
	w := g.world
	w.inFlight = slices.DeleteFunc(w.inFlight, func(f planner.InFlight) bool {
		return f.Partition == op.Partition
	})
	p := w.partitions[op.Partition]
	if !success || p.Epoch != op.Epoch ||
		op.Kind == planner.Merge && w.partitions[op.Right].Epoch != op.RightEpoch {
		return false
	}
	if w.finish(op); op.Kind == planner.Split {
		g.last = max(g.last, slices.Max(slices.Collect(maps.Keys(w.partitions))))
	}
	return true
}

// differences names the zones and partitions of which the two know something else.
func (g *generator) differences(fresh *rooms) string {
	text := ""
	for i := range g.world.state.Zones {
		text += fmt.Sprintf("%+v\n", g.world.state.Zones[i])
	}
	for i := range fresh.state.Zones {
		text += fmt.Sprintf("fresh %+v\n", fresh.state.Zones[i])
	}
	for _, id := range slices.Sorted(maps.Keys(g.world.partitions)) {
		i, _ := g.world.state.PartitionIndex(id)
		j, _ := fresh.state.PartitionIndex(id)
		got, _ := g.world.objective.Check(i)
		want, _ := fresh.objective.Check(j)
		if want.Partition = i; got != want {
			text += fmt.Sprintf("%s: %+v, fresh %+v; %+v\n", id, got, want, g.world.partitions[id])
		}
	}
	return text
}
