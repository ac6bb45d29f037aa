package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
)

// What status says is wrong is named, and nothing else.
func TestJudge(t *testing.T) {
	nodes := []kv.NodeInfo{{ID: 1, Address: "10.0.0.1:7400", Alive: true},
		{ID: 2, Address: "10.0.0.2:7400", Alive: true}, {ID: 3, Address: "10.0.0.3:7400", Alive: true}}
	replicas := []kv.ReplicaInfo{{Node: 1}, {Node: 2}, {Node: 3}}
	partitions := []kv.PartitionInfo{{ID: 7, Keyspace: "things", Replicas: replicas, Leader: 3},
		{ID: 8, Keyspace: "things", Replicas: replicas, Leader: 1}}
	if p, again := judge(nodes, partitions); p.any() || again {
		t.Errorf("all is well, and it is said: %+v", p)
	}
	nodes[2].Alive, nodes[0].DiskFull, nodes[1].ClockUnhealthy, nodes[1].FailedReplicas =
		false, true, true, 2
	p, again := judge(nodes, partitions)
	if p.unavailable.total != 1 ||
		!strings.Contains(p.unavailable.names[0], "partition 7 of things") || !again {
		t.Errorf("a partition whose leader is down: %+v, again %v", p.unavailable, again)
	}
	if p.underReplicated.total != 1 || p.full.total != 1 || p.unhealthy.total != 2 {
		t.Errorf("one node is down, one full, one unhealthy for two reasons: %+v", p)
	}
	// The server at its address is another node now, which has begun with an empty directory.
	wiped := append(slices.Clone(nodes), kv.NodeInfo{ID: 4, Address: nodes[2].Address, Alive: true})
	if p, _ := judge(wiped, partitions); p.underReplicated.names[0] != "node 3 (10.0.0.3:7400) "+
		"is gone, node 4 is at its address: 2 replicas" {
		t.Errorf("a node whose directory was lost: %q", p.underReplicated.names)
	}
	nodes[1].Alive = false
	if p, again = judge(nodes, partitions); p.unavailable.total != 2 || again ||
		!strings.Contains(p.unavailable.names[1], "nodes 2, 3 are down") {
		t.Errorf("two of three nodes are down: %+v, again %v", p.unavailable, again)
	}
	var many named
	for range 3 * namedProblems {
		many.add("x")
	}
	if cell := many.cell(true).([]string); len(cell) != namedProblems+1 ||
		cell[namedProblems] != "and 40 more" {
		t.Errorf("%d of %d are named, the last is %q", len(cell), many.total, cell[len(cell)-1])
	}
	if none := new(named); none.cell(false) != nil || len(none.cell(true).([]string)) != 0 {
		t.Errorf("nothing is wrong: %v; nothing is known: %v", none.cell(true), none.cell(false))
	}
}

// What is wrong is said whole, however long it is: a table would have to cut it.
func TestProblemsAreNotCut(t *testing.T) {
	var p problems
	p.unavailable.add("partition 7 of things: no leader; nodes 1, 2 are down")
	p.underReplicated.add("node 1 (10.0.0.1:7400) is down: 8 replicas")
	p.underReplicated.add("node 2 (10.0.0.2:7400) is down: 8 replicas, \x1b[31m")
	var out strings.Builder
	p.print(&out, []string{"10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"},
		"the core has no quorum")
	want := `core: 10.0.0.1:7400, 10.0.0.2:7400, 10.0.0.3:7400
not ready: the core has no quorum
unavailable: partition 7 of things: no leader; nodes 1, 2 are down
under replicated: node 1 (10.0.0.1:7400) is down: 8 replicas
under replicated: node 2 (10.0.0.2:7400) is down: 8 replicas, \x1b[31m
`
	if out.String() != want {
		t.Errorf("%s\nwant\n%s", out.String(), want)
	}
}
