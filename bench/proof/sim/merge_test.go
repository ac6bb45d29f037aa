package sim_test

import (
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/bench/proof/sim"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
)

// Neighbours merge. At moments of the merges a follower is cut off, all servers lose their power,
// or a follower is cut off for long. Some merges are given up, and some are applied again.
func TestMerges(t *testing.T) {
	s, err := sim.ParseSchedule(mergesSchedule)
	if err != nil {
		t.Fatal(err)
	}
	cryptotest.SetGlobalRandom(t, s.Seed)
	c := sim.Config{Schedule: s}
	if c.Workloads, err = workloads.Choose("counters", "batches"); err != nil {
		t.Fatal(err)
	}
	var r sim.Report
	synctest.Test(t, func(t *testing.T) { r = sim.Run(t, c) })
	for _, v := range r.Violations {
		t.Errorf("VIOLATION %s", v)
	}
	for _, what := range []string{"merges", "replicas merged", "merges given up",
		"merges applied again", "drops during merges",
		"lose at the freeze of a merge", "crash at the commit of a merge",
		"lose at the merge of a merge"} {
		if r.Covered[what] == 0 {
			t.Errorf("no %s", what)
		}
	}
	if t.Failed() || testing.Verbose() {
		t.Logf("%s\n%s", list(r.Covered), strings.Join(r.Events, "\n"))
	}
}

const mergesSchedule = `
seed 3
duration 70s
1s +0s split partition=1 share=300 times=6 every=300ms cancel=0s
4.9s +8s at-merge moment=freeze skip=0 delay=0s victim=follower how=lose unsynced=0
5s +0s merge boundary=1 times=8 every=500ms cancel=0s
14.9s +3s at-merge moment=commit skip=0 delay=2ms victim=all how=crash unsynced=0
15s +0s merge boundary=1 times=8 every=500ms cancel=0s
22s +0s split partition=1 share=300 times=6 every=300ms cancel=0s
29.9s +30s at-merge moment=merge skip=0 delay=0s victim=follower how=lose unsynced=0
30s +0s merge boundary=1 times=8 every=500ms cancel=0s
64s +0s split partition=1 share=300 times=4 every=300ms cancel=0s
`
