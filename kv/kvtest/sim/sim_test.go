package sim_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/bench/history"
	"github.com/tidemarkdb/tidemark/kv/kvtest/sim"
)

var (
	firstSeed = flag.Uint64("sim.seed", 1, "the first seed")
	seeds     = flag.Int("sim.seeds", 4, "how many seeds, from the first one on")
	minutes   = flag.Float64("sim.minutes", 1, "virtual minutes of each seed")
	events    = flag.Bool("sim.events", false, "print the schedule of seeds that pass too")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSim runs schedules of faults from seeds: go test ./kv/kvtest/sim -run TestSim -sim.seed 7 -sim.seeds 1 -sim.minutes 5
func TestSim(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			runSeed(t, sim.Config{Seed: seed, Duration: time.Duration(*minutes * float64(time.Minute))})
		})
	}
}

// runSeed runs in a bubble and checks the histories outside of it.
func runSeed(t *testing.T, c sim.Config) {
	began := time.Now()
	var r sim.Report
	synctest.Test(t, func(t *testing.T) {
		r = sim.Run(t, c)
	})
	checked := history.Check(r.History, 20*time.Second)
	if err := checked.Err(); err != nil {
		t.Error(err)
	}
	for _, v := range r.Violations {
		t.Errorf("VIOLATION %s", v)
	}
	if t.Failed() || *events {
		t.Logf("seed %d, schedule:\n%s", r.Seed, strings.Join(r.Events, "\n"))
	}
	if t.Failed() {
		t.Logf("the servers' logs at the first violation, or at the end:\n%s", r.Log)
	}
	t.Logf("seed %d: %s, %v virtual in %v real, %d faults, longest standstill %v\n%v\n%s\n%s", r.Seed, r.Cluster, r.Duration.Round(time.Second),
		time.Since(began).Round(time.Millisecond), len(r.Events), r.Longest, checked, list(r.Covered), list(r.Operations))
}

// list is names and numbers in one line.
func list(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}
