package main

import (
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv/admin/health"
)

// What is wrong is said whole, however long it is: a table would have to cut it.
func TestProblemsAreNotCut(t *testing.T) {
	var p health.Problems
	p.Unavailable.Add("partition 7 of things: no leader; nodes 1, 2 are down")
	p.UnderReplicated.Add("node 1 (10.0.0.1:7400) is down: 8 replicas")
	p.UnderReplicated.Add("node 2 (10.0.0.2:7400) is down: 8 replicas, \x1b[31m")
	var out strings.Builder
	printProblems(&p, &out, output.Screen{}, []string{"10.0.0.1:7400", "10.0.0.2:7400", "10.0.0.3:7400"},
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

// A list that is empty because nothing is known differs from one without problems.
func TestCellOfProblems(t *testing.T) {
	if none := new(health.List); cellOf(none, false) != nil ||
		len(cellOf(none, true).([]string)) != 0 {
		t.Errorf("nothing is wrong: %v; nothing is known: %v", cellOf(none, true), cellOf(none, false))
	}
}
