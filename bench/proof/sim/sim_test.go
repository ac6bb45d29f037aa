package sim_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/bench/proof/sim"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
)

var (
	firstSeed  = flag.Uint64("sim.seed", 1, "the first seed")
	seeds      = flag.Int("sim.seeds", 6, "how many seeds, from the first one on")
	minutes    = flag.Float64("sim.minutes", 2, "virtual minutes of each seed")
	scheduleIn = flag.String("sim.schedule", "",
		"run the schedule in this file instead of those of seeds")
	only = flag.String("sim.workloads", "",
		"run these workloads of bench/proof/workloads, with commas between them, instead of the "+
			"seeds' own")
	backups = flag.Bool("sim.backups", false,
		"every seed makes backups and restores them, and not only every fifth")
	transacts = flag.Bool("sim.transactions", false, "the seeds run workloads with transactions")
	events    = flag.Bool("sim.events", false, "print what happened in runs that pass too")
	resultTo  = flag.String("sim.result", "", "write the result to this file, for the soak")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestSim runs schedules of faults, from seeds or from a file: go test ./bench/proof/sim -run
// TestSim -sim.seed 7 -sim.seeds 1 -sim.minutes 5
func TestSim(t *testing.T) {
	if *scheduleIn != "" {
		text, err := os.ReadFile(*scheduleIn)
		if err != nil {
			t.Fatal(err)
		}
		s, err := sim.ParseSchedule(string(text))
		if err != nil {
			t.Fatal(err)
		}
		run(t, s)
		return
	}
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			run(t, sim.Draw(seed, time.Duration(*minutes*float64(time.Minute)), *transacts))
		})
	}
}

// fixedTransactional is the number of seeds with transactions in every test run.
const fixedTransactional = 4

// TestSimTransactions runs the first seeds with transactions. TestSim -sim.transactions runs any.
func TestSimTransactions(t *testing.T) {
	for seed := range uint64(fixedTransactional) {
		t.Run(fmt.Sprint(seed+1), func(t *testing.T) {
			run(t, sim.Draw(seed+1, time.Duration(*minutes*float64(time.Minute)), true))
		})
	}
}

// Servers end, by a loss of power or by a stop, when transactions have written to one of their
// partitions. They start again with the state on their disks.
func TestLockedCrash(t *testing.T) {
	s, err := sim.ParseSchedule(`
		seed 3
		duration 25s
		transactions
		5s +3s locked-crash partition=1 delay=2ms spared=0 clean=false flushed=2 unsynced=50
		13s +3s locked-crash partition=0 delay=1ms spared=1 clean=true flushed=0 unsynced=0`)
	if err != nil {
		t.Fatal(err)
	}
	cryptotest.SetGlobalRandom(t, s.Seed)
	c := sim.Config{Schedule: s}
	if c.Workloads, err = workloads.Choose("bank", "increments"); err != nil {
		t.Fatal(err)
	}
	var r sim.Report
	synctest.Test(t, func(t *testing.T) { r = sim.Run(t, c) })
	for _, v := range r.Violations {
		t.Errorf("VIOLATION %s", v)
	}
	if n := r.Covered["ends with intents"]; n != 2 || r.Covered["crashes"] != 3 {
		t.Errorf("servers ended %d times with intents, and should have twice:\n%s\n%s", n,
			list(r.Covered), strings.Join(r.Events, "\n"))
	}
}

// result is the result of one schedule that a child process reports to the soak.
type result struct {
	Seed       uint64
	Virtual    time.Duration
	Violations []string
	Operations int
	// Transactions is the number of successful transactions. Retries is the number of attempts that
	// were followed by another attempt.
	Transactions, Retries int
	Covered               map[string]int
	// Rows has the outcomes of operations.
	Rows []calm.Row
}

// run runs a schedule in a bubble, and checks the histories outside of it.
func run(t *testing.T, s sim.Schedule) {
	// Raft draws its election timeouts from crypto/rand.
	cryptotest.SetGlobalRandom(t, s.Seed)
	began := time.Now()
	var r sim.Report
	c := sim.Config{Schedule: s, Backups: *backups}
	if *only != "" {
		var err error
		if c.Workloads, err = workloads.Choose(strings.Split(*only, ",")...); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) { r = sim.Run(t, c) })
	checked := history.Check(r.History, 20*time.Second)
	if err := checked.Err(); err != nil {
		r.Violations = append(r.Violations, err.Error())
	}
	r.Violations = append(r.Violations, r.Later()...)
	for _, v := range r.Violations {
		t.Errorf("VIOLATION %s", v)
	}
	if t.Failed() || *events {
		t.Logf("what happened:\n%s", strings.Join(r.Events, "\n"))
	}
	if t.Failed() {
		t.Logf("the servers' logs at the first violation, or at the end:\n%s", r.Log)
		t.Logf("the messages between the servers until then:\n%s", r.Trace)
		t.Logf("the schedule, for make sim SCHEDULE=file, and make sim-shrink SCHEDULE=file:\n%s",
			r.Schedule)
	}
	t.Logf("how operations ended:\n%s", calm.Table(r.Rows))
	t.Logf("seed %d: %s; %v virtual in %v real, %d faults, longest standstill %v, %d "+
		"transactions, %d retries\n%v\n%s\n%s", s.Seed, r.Cluster,
		r.Duration.Round(time.Second), time.Since(began).Round(time.Millisecond), len(s.Faults),
		r.Longest, r.Transactions, r.Retries, checked,
		list(r.Covered), list(r.Operations))
	if *resultTo != "" {
		out := result{Seed: s.Seed, Virtual: r.Duration, Violations: r.Violations,
			Transactions: r.Transactions, Retries: r.Retries, Covered: r.Covered,
			Rows: r.Rows}
		for _, n := range r.Operations {
			out.Operations += n
		}
		text, err := json.Marshal(out)
		if err == nil {
			err = os.WriteFile(*resultTo, text, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// list lists names and numbers in one line.
func list(counts map[string]int) string {
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", what, counts[what]))
	}
	return strings.Join(parts, ", ")
}
