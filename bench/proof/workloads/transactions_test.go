package workloads

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/isolation"
)

// transactionLoads are small workloads of every kind.
var transactionLoads = map[string]func() driver.Transactions{
	"bank": func() driver.Transactions {
		return &Bank{Accounts: 4, Parallel: 6, Pause: 20 * time.Millisecond}
	},
	"increments": func() driver.Transactions {
		return &Increments{Keys: 2, Parallel: 6, Pause: 20 * time.Millisecond}
	},
	"duties": func() driver.Transactions {
		return &Duties{Groups: 3, Size: 3, Parallel: 6, Pause: 20 * time.Millisecond}
	},
	"inserts": func() driver.Transactions {
		return &Inserts{Strict: true, Age: 2 * time.Second, Parallel: 8,
			Pause: 100 * time.Millisecond, ReadPause: 20 * time.Millisecond}
	},
	"dependencies": func() driver.Transactions {
		return &Dependencies{Keys: 6, Age: 2 * time.Second, Parallel: 6,
			Pause: 20 * time.Millisecond,
			Claim: isolation.Options{Level: isolation.StrictSerialisable}}
	},
	"news": func() driver.Transactions {
		return &News{Strict: true, Keys: 4, Parallel: 6, Pause: 20 * time.Millisecond}
	},
	"snapshots": func() driver.Transactions {
		return &Snapshots{Groups: 2, Size: 4, Parallel: 6, Pause: 20 * time.Millisecond}
	},
}

// transact runs transactions against a database in virtual time, until done returns true for the
// violations found.
func transact(t *testing.T, load driver.Transactions, w weakness, long time.Duration,
	done func(violations []string) bool) found {
	t.Helper()
	var f found
	synctest.Test(t, func(t *testing.T) {
		db, run := newMemDB(w), driver.NewRun(nil)
		if err := load.Setup(t.Context(), run, db); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), long)
		defer cancel()
		var running sync.WaitGroup
		for i := range load.Clients() {
			running.Go(func() {
				load.Drive(ctx, run, i, db.client(i/2), rand.New(rand.NewPCG(uint64(i), 1)))
			})
		}
		for ctx.Err() == nil && !done(run.Violations()) {
			time.Sleep(100 * time.Millisecond)
		}
		cancel()
		running.Wait()
		if err := load.Check(t.Context(), run, db); err != nil {
			run.Violation("check: %v", err)
		}
		f = found{run.Violations(), run.Operations()}
	})
	return f
}

func TestStrictDatabase(t *testing.T) {
	for name, load := range transactionLoads {
		t.Run(name, func(t *testing.T) {
			f := transact(t, load(), strict, 10*time.Second, func([]string) bool { return false })
			for _, v := range f.violations {
				t.Error(v)
			}
			t.Log(f.operations)
		})
	}
}

// TestWeakDatabases checks, for each weakness, that certain workloads find it, and what they
// report.
func TestWeakDatabases(t *testing.T) {
	for name, test := range map[string]struct {
		weak weakness
		by   map[string]string
	}{
		"snapshot isolation": {snapshotIsolation, map[string]string{"duties": "are on duty",
			"dependencies": "G2-item"}},
		"lost updates": {lostUpdates, map[string]string{"increments": "stale read",
			"bank":         "should have",
			"dependencies": "lost-update"}},
		"read committed": {readCommitted, map[string]string{"bank": "should have",
			"snapshots": "and then", "dependencies": "G-single"}},
		"dirty reads": {dirtyReads, map[string]string{"bank": "should have",
			"increments": "builds on attempt", "dependencies": "G1a"}},
		"stale snapshots": {staleSnapshots, map[string]string{"increments": "stale read",
			"inserts":   "acknowledged before it began",
			"snapshots": "acknowledged before it began", "news": "acknowledged before it began",
			"dependencies": "realtime"}},
		"two sites": {twoSites,
			map[string]string{"inserts": "of the keys that both looked at"}},
		"late visibility": {lateVisibility,
			map[string]string{"inserts": "acknowledged before the write of"}},
		"lost commits": {lostCommits, map[string]string{"increments": "stale read",
			"inserts": "misses", "snapshots": "as of", "dependencies": ""}},
		"doubled commits": {doubledCommits,
			map[string]string{"snapshots": "directly below the commit",
				"dependencies": "duplicate-elements"}},
		"phantoms": {phantoms, map[string]string{"duties": "are on duty"}},
		"false aborts": {falseAborts, map[string]string{"inserts": "were refused",
			"increments": "had no effect", "dependencies": "G1a"}},
		"shifting past": {shiftingPast,
			map[string]string{"snapshots": "directly below the commit"}},
	} {
		for by, says := range test.by {
			t.Run(fmt.Sprintf("%s by %s", name, by), func(t *testing.T) {
				told := func(violations []string) bool {
					return slices.ContainsFunc(violations,
						func(v string) bool { return strings.Contains(v, says) })
				}
				f := transact(t, transactionLoads[by](), test.weak, 30*time.Second, told)
				if !told(f.violations) || len(f.violations) == 0 {
					t.Errorf("no violation says %q; operations: %v\n%s", says, f.operations,
						strings.Join(f.violations, "\n"))
				} else {
					i := slices.IndexFunc(f.violations,
						func(v string) bool { return strings.Contains(v, says) })
					t.Logf("%.300s", f.violations[i])
				}
			})
		}
	}
}
