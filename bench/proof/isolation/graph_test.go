package isolation

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawGraph makes a small graph with edges of all classes, and without joints. The ends of edges
// are nodes.
func drawGraph(t *rapid.T) *graph {
	g := &graph{nodes: rapid.IntRange(1, 7).Draw(t, "nodes")}
	for range rapid.IntRange(0, 14).Draw(t, "edges") {
		g.add(edge{
			from:  int32(rapid.IntRange(0, g.nodes-1).Draw(t, "from")),
			to:    int32(rapid.IntRange(0, g.nodes-1).Draw(t, "to")),
			class: rapid.SampledFrom([]class{ww, wr, rw, rw, process, realtime}).Draw(t, "class"),
			key:   none, before: none, after: none,
		})
	}
	g.sort()
	return g
}

const unreachable = 1 << 20

// distances returns the lengths of the shortest paths between all places of a view (Floyd and
// Warshall).
func distances(v *view) [][]int {
	n := v.places()
	d := make([][]int, n)
	for i := range d {
		d[i] = slices.Repeat([]int{unreachable}, n)
		node := v.node(int32(i))
		for _, e := range v.graph.edges[v.graph.first[node]:v.graph.first[node+1]] {
			if to := v.step(int32(i), &e); to >= 0 {
				d[i][to] = 1
			}
		}
	}
	for k := range n {
		for i := range n {
			for j := range n {
				d[i][j] = min(d[i][j], d[i][k]+d[k][j])
			}
		}
	}
	return d
}

func TestComponentsAndCyclesAgainstReachability(t *testing.T) {
	var cyclic int
	repeat(t, func(t *rapid.T) {
		g := drawGraph(t)
		v := view{
			graph: g, nonadjacent: rapid.Bool().Draw(t, "nonadjacent"),
			mask: rapid.SampledFrom([]class{ww, ww | wr, ww | wr | rw, 0xff}).Draw(t, "mask"),
		}
		d := distances(&v)
		inside := map[int32]bool{}
		for _, component := range v.components() {
			cyclic++
			shortest := unreachable
			for _, a := range component {
				inside[a] = true
				shortest = min(shortest, d[a][a])
				for b := range int32(v.places()) {
					together := d[a][b] < unreachable && d[b][a] < unreachable
					if together != slices.Contains(component, b) {
						t.Fatalf("places %d and %d: in one component %v, reach each other %v", a, b,
							!together, together)
					}
				}
			}
			s := newSearch(g, 1_000_000)
			s.enter(component)
			cycle := s.shortest(&v, component)
			antis := 0
			for i, e := range cycle {
				next := cycle[(i+1)%len(cycle)]
				if e.to != next.from || e.class&v.mask == 0 {
					t.Fatalf("%v is no cycle", cycle)
				}
				if e.class&anti != 0 {
					antis++
					if v.nonadjacent && next.class&anti != 0 {
						t.Fatalf("%v has adjacent anti-dependencies", cycle)
					}
				}
			}
			if len(cycle) != shortest && (!v.nonadjacent || antis != 1) {
				t.Fatalf("%v has %d edges, and there is one with %d", cycle, len(cycle), shortest)
			}
			if s.gaveUp {
				t.Fatal("it gave up")
			}
		}
		for place := range int32(v.places()) {
			if d[place][place] < unreachable && !inside[place] {
				t.Fatalf("place %d is on a cycle and in no component", place)
			}
		}
	})
	if cyclic == 0 {
		t.Error("no graph had a cycle: the test proves little")
	}
}

// TestForbiddenWalks compares the doubled graph with the definition of snapshot isolation: a walk
// of dependencies, each followed by at most one anti-dependency, never leads back to its start.
func TestForbiddenWalks(t *testing.T) {
	repeat(t, func(t *rapid.T) {
		g := drawGraph(t)
		reach := make([][]bool, g.nodes)
		for i := range reach {
			reach[i] = make([]bool, g.nodes)
		}
		for _, e := range g.edges {
			if e.class&anti != 0 {
				continue
			}
			reach[e.from][e.to] = true
			for _, f := range g.edges[g.first[e.to]:g.first[e.to+1]] {
				if f.class&anti != 0 {
					reach[e.from][f.to] = true
				}
			}
		}
		for k := range reach {
			for i := range reach {
				for j := range reach {
					reach[i][j] = reach[i][j] || (reach[i][k] && reach[k][j])
				}
			}
		}
		want := false
		for i := range reach {
			want = want || reach[i][i]
		}
		v := view{graph: g, mask: 0xff, nonadjacent: true}
		if got := len(v.components()) > 0; got != want {
			t.Fatalf("forbidden: %v, by definition: %v: %v", got, want, g.edges)
		}
	})
}

// TestFrontierImpliesAllOrder compares the sparse order with the order of all pairs.
func TestFrontierImpliesAllOrder(t *testing.T) {
	repeat(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(t, "transactions")
		c := checker{history: make([]Transaction, n)}
		accesses := make([]access, n)
		snapshots := 0
		for i := range n {
			begin := rapid.IntRange(0, 12).Draw(t, "begin")
			tx := &c.history[i]
			tx.Begin, tx.End = time.Duration(begin),
				time.Duration(begin+rapid.IntRange(0, 5).Draw(t, "takes"))
			tx.Outcome = rapid.SampledFrom([]Outcome{Committed, Committed, Committed,
				Unknown}).Draw(t, "outcome")
			if rapid.IntRange(0, 3).Draw(t, "snapshot") == 0 {
				snapshots++
				tx.Snapshot.Wall = 1
			}
			accesses[i] = access{transaction: int32(i), writes: rapid.Bool().Draw(t, "writes")}
		}
		reach := make([][]bool, n)
		for i := range reach {
			reach[i] = make([]bool, n)
		}
		c.sweep(accesses, func(before, after int32) {
			if !(c.end(before) < c.begin(after)) || c.history[after].Snapshot != (Timestamp{}) ||
				!(accesses[before].writes || accesses[after].writes) {
				t.Fatalf("%v comes before %v", c.history[before], c.history[after])
			}
			reach[before][after] = true
		})
		for k := range reach {
			for i := range reach {
				for j := range reach {
					reach[i][j] = reach[i][j] || (reach[i][k] && reach[k][j])
				}
			}
		}
		for i := range reach {
			for j := range reach {
				ordered := c.end(int32(i)) < c.begin(int32(j)) && c.history[j].Snapshot.IsZero() &&
					(accesses[i].writes || accesses[j].writes)
				if ordered && !reach[i][j] {
					t.Fatalf("that %v comes before %v is not implied", c.history[i], c.history[j])
				}
			}
		}
	})
}

// TestJointsStandForAllPairs: with many readers of one version and many writers of later versions,
// a joint needs their sum of edges, and has the same meaning as all pairs.
func TestJointsStandForAllPairs(t *testing.T) {
	const many = 300
	for _, lists := range []bool{true, false} {
		var history []Transaction
		add := func(operations ...Operation) {
			history = append(history, Transaction{Session: len(history), Begin: 0, End: 1,
				Outcome: Committed, Operations: operations})
		}
		write, read := Write, Operation{Kind: Read, Key: "x", Absent: true}
		if lists {
			write, read = Append, Operation{Kind: ReadList, Key: "x"}
		}
		for i := range many {
			add(read)
			add(Operation{Kind: write, Key: "x", Value: fmt.Sprint(i)})
		}
		// This transaction also reads, and must not precede itself through the joint.
		add(read, Operation{Kind: write, Key: "x", Value: "updated"})
		report, err := Check(history, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(report.Findings) > 0 {
			t.Errorf("lists %v: %v", lists, report.Err())
		}
		if report.Edges > 10*many {
			t.Errorf("lists %v: %d edges for %d transactions", lists, report.Edges, len(history))
		}
		add(read, Operation{Kind: Read, Key: "y", Value: "seen"})
		add(Operation{Kind: write, Key: "x", Value: "late"}, Operation{Kind: Write, Key: "y",
			Value: "seen"})
		report, err = Check(history, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Anomalies(); !slices.Equal(got, []Anomaly{GSingle}) {
			t.Fatalf("lists %v: found %v", lists, got)
		}
		cycle := report.Findings[0].Cycle
		if len(cycle) != 2 || cycle[0].From+cycle[1].From != 2*len(history)-3 {
			t.Errorf("lists %v: %v", lists, report.Findings[0])
		}

		// A write skew through the joint is reported as a write skew: its two anti-dependencies
		// follow one another.
		history = history[:len(history)-2]
		add(read, Operation{Kind: Read, Key: "z", Value: "skewed"})
		add(Operation{Kind: Read, Key: "y", Absent: true}, Operation{Kind: write, Key: "x",
			Value: "late"})
		add(Operation{Kind: Write, Key: "y", Value: "skewed"}, Operation{Kind: Write, Key: "z",
			Value: "skewed"})
		report, err = Check(history, Options{Level: SnapshotIsolation})
		if err != nil {
			t.Fatal(err)
		}
		if got := report.Anomalies(); !slices.Equal(got, []Anomaly{G2Item}) || report.Err() != nil {
			t.Errorf("lists %v: found %v", lists, got)
		}
	}
}

func TestJointsAreNotShown(t *testing.T) {
	const joint = 5
	through := []edge{
		{from: joint, to: 1, key: 3, before: 7, after: 8, class: hop},
		{from: 1, to: 0, key: 4, class: wr},
		{from: 0, to: joint, key: 3, before: 7, after: none, class: rw},
	}
	want := []edge{{from: 0, to: 1, key: 3, before: 7, after: 8, class: rw},
		{from: 1, to: 0, key: 4, class: wr}}
	for range through {
		if got := withoutJoints(through, joint); !slices.Equal(got, want) && !slices.Equal(got,
			[]edge{want[1], want[0]}) {
			t.Errorf("%v", got)
		}
		through = append(through[1:], through[0])
	}
}

// TestLinksAreTheOrder compares link with the definition of the order.
func TestLinksAreTheOrder(t *testing.T) {
	repeat(t, func(t *rapid.T) {
		history := drawHistory(t, 5, true, false)
		for _, options := range []Options{{Level: Serialisable}, {Level: StrongSessionSerialisable},
			{Level: StrictSerialisable}} {
			c := checker{options: options, history: history}
			for i := range history {
				for j := range history {
					if i == j {
						continue
					}
					_, got := c.link(pass{extra: realtimeEdges, base: everything}, int32(i),
						int32(j))
					if want := mustPrecede(&history[i], &history[j], i < j, options); got != want {
						t.Fatalf("%v: %v before %v: %v, by definition %v", options.Level,
							history[i], history[j], got, want)
					}
				}
			}
		}
	})
}
