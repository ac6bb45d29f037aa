package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// found has the results of a workload's run.
type found struct {
	violations []string
	operations map[string]int
}

// drive runs a workload against a fake cluster in virtual time until it finds a violation. It
// checks the histories outside of the bubble. Mistakes cause errors, too. Errors do not count,
// because the workload must find the mistake itself.
func drive(t *testing.T, load driver.Workload, m mistakes, long time.Duration) found {
	t.Helper()
	return driveIn(t, load, m, m != mistakes{}, long)
}

// driveIn does the same as drive, in a storm or in calm.
func driveIn(t *testing.T, load driver.Workload, m mistakes, storm bool, long time.Duration) found {
	t.Helper()
	var run *driver.Run
	var histories []history.Operation
	synctest.Test(t, func(t *testing.T) {
		cluster := startFake(t, m)
		run = driver.NewRun(cluster.open)
		if storm {
			run.Weather.Begin()
		}
		if err := load.Setup(t.Context(), run); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		run.OnViolation = cancel
		var running sync.WaitGroup
		for i := range load.Clients() {
			client, hangUp, err := run.Connect(t.Context(), load.Name())
			if err != nil {
				t.Fatal(err)
			}
			defer hangUp()
			running.Go(func() {
				load.Drive(ctx, run, i, client, rand.New(rand.NewPCG(uint64(i), 1)))
			})
		}
		running.Wait()
		client, hangUp, err := run.Connect(t.Context(), load.Name())
		if err != nil {
			t.Fatal(err)
		}
		defer hangUp()
		checking, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := load.Check(checking, run, client); err != nil {
			run.Violation("check: %v", err)
		}
		run.Judge()
		histories = run.History.Operations()
	})
	run.CheckHistory(histories)
	return found{run.Violations(), run.Operations()}
}

// loads are small workloads of every kind.
var loads = map[string]func() driver.Workload{
	"registers": func() driver.Workload {
		return &Registers{Keyspace: "registers", Partitions: 3, Keys: 2, Age: 2 * time.Second,
			Pause: 50 * time.Millisecond, Parallel: 4, Readers: 2}
	},
	"counters": func() driver.Workload {
		return &Counters{Keys: 1, Pause: 20 * time.Millisecond, Parallel: 4}
	},
	"rings": func() driver.Workload {
		return &Rings{Keyspace: "rings", Writers: 1, Readers: 3, Size: 5,
			Pause: 50 * time.Millisecond, ReadPause: 50 * time.Millisecond}
	},
	"batches": func() driver.Workload {
		return &Batches{Groups: 5, Size: 4, Pause: 50 * time.Millisecond, Parallel: 4}
	},
	"watched": func() driver.Workload {
		return &Watched{Keys: 2, Readers: 3, Pause: 50 * time.Millisecond,
			ReadPause: 50 * time.Millisecond}
	},
	"past": func() driver.Workload {
		return &Past{Keys: 3, Readers: 2, Pause: 200 * time.Millisecond,
			ReadPause: 50 * time.Millisecond}
	},
	"sessions": func() driver.Workload {
		return &Sessions{Parallel: 4, Keys: 3, Partitions: 6, Pause: 50 * time.Millisecond}
	},
	"lists": func() driver.Workload {
		return &Lists{Keys: 2, Age: 3 * time.Second, Parallel: 4, Pause: 50 * time.Millisecond}
	},
	"sets":        func() driver.Workload { return smallSets(0) },
	"hashed sets": func() driver.Workload { return smallSets(4) },
	"feed": func() driver.Workload {
		return &Feed{Keyspace: "feed", Layout: []kv.KeyspaceOption{kv.Hash(2)}, Writers: 3, Keys: 5,
			Followers: 2, Pause: 50 * time.Millisecond, Rest: 3 * time.Second}
	},
}

func smallSets(partitions int) driver.Workload {
	return &Sets{Keyspace: "sets", Partitions: partitions, Adders: 3, Scanners: 2,
		Age: 3 * time.Second, Pause: 50 * time.Millisecond,
		ScanPause: 300 * time.Millisecond, Large: 2000}
}

// TestSoundCluster: connections break all the time, and no workload reports a violation.
func TestSoundCluster(t *testing.T) {
	for name, load := range loads {
		t.Run(name, func(t *testing.T) {
			f := drive(t, load(), mistakes{}, 10*time.Second)
			for _, v := range f.violations {
				t.Error(v)
			}
			t.Log(f.operations)
		})
	}
}

// TestMistakesAreFound checks, for each mistake, that certain workloads find it.
func TestMistakesAreFound(t *testing.T) {
	for name, test := range map[string]struct {
		mistakes mistakes
		by       string
	}{
		"lost writes": {mistakes{LostWrites: true},
			"registers, counters, batches, lists, watched, sets, sessions"},
		"soon lost writes": {mistakes{LostSoon: true}, "registers, lists, sets"},
		"stale reads": {mistakes{StaleReads: true},
			"registers, counters, rings, watched, sessions, lists, sets"},
		"doubled retries":      {mistakes{DoubledRetries: true}, "registers, lists, sets, batches"},
		"executed refusals":    {mistakes{RefusedWrites: true}, "registers, lists, sets"},
		"lost rows":            {mistakes{LostRows: true}, "sets, hashed sets, batches"},
		"repeated rows":        {mistakes{RepeatedRows: true}, "sets, hashed sets"},
		"dropped session":      {mistakes{DroppedSession: true}, "sessions"},
		"low writes":           {mistakes{LowWrites: true}, "past"},
		"torn batches":         {mistakes{TornBatches: true}, "batches"},
		"scans of the present": {mistakes{PresentScans: true}, "rings, sets"},
		"blind swaps":          {mistakes{BlindSwaps: true}, "registers, counters, lists"},
		"undeleted keys":       {mistakes{Undeleted: true}, "sets, hashed sets"},
		"lost changes":         {mistakes{LostChanges: true}, "feed"},
		"early resolved":       {mistakes{EarlyResolved: true}, "feed"},
		"wrong counts":         {mistakes{Miscount: true}, "sets, hashed sets"},
	} {
		for _, by := range strings.Split(test.by, ", ") {
			t.Run(fmt.Sprintf("%s by %s", name, by), func(t *testing.T) {
				// Chance decides which requests the mistake affects, and whether that does harm.
				// Most mistakes are found in the first half minute.
				const patience = 8
				for n := 1; ; n++ {
					f := drive(t, loads[by](), test.mistakes, 30*time.Second)
					if len(f.violations) > 0 {
						t.Logf("%.400s", f.violations[0])
						return
					}
					if n == patience {
						t.Fatalf("nothing found in %d runs; operations of the last: %v", n,
							f.operations)
					}
				}
			})
		}
	}
}

func TestChoose(t *testing.T) {
	chosen, err := Choose("sets", "registers")
	if err != nil || len(chosen) != 2 || chosen[0].Name() != "sets" ||
		chosen[1].Name() != "registers" {
		t.Errorf("chose %v: %v", Names(chosen), err)
	}
	if _, err := Choose("registers", "nothing"); err == nil || !strings.Contains(err.Error(),
		"hashed-sets") {
		t.Errorf("an unknown name: %v", err)
	}
	names := make(map[string]bool)
	for _, name := range Names(Standard()) {
		if names[name] {
			t.Errorf("two workloads are called %s", name)
		}
		names[name] = true
	}
}
