package sim_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/sim"
)

var (
	hours = flag.Float64("sim.hours", 0,
		"run seeds in processes of their own for so many virtual hours (TestSoak)")
	parallel = flag.Int("sim.parallel", runtime.NumCPU(), "how many processes at a time")
	failures = flag.String("sim.failures", "sim-failures",
		"where the output of runs that fail is kept")
	tries = flag.Int("sim.tries", 3,
		"how often a smaller schedule may pass before it counts as passing (TestShrinkSchedule)")
	runTimeout = flag.Duration("sim.timeout", 10*time.Minute,
		"how much real time one run has: what takes longer stands still")
)

// child runs one schedule or seed in a process of its own. It returns the result and the output.
// The result is nil if the process crashed or hung, or if its bubble was deadlocked.
func child(ctx context.Context, args ...string) (*result, []byte, error) {
	dir, err := os.MkdirTemp("", "sim")
	if err != nil {
		return nil, nil, err
	}
	defer os.RemoveAll(dir)
	told := filepath.Join(dir, "result")
	ctx, cancel := context.WithTimeout(ctx, *runTimeout)
	defer cancel()
	args = append([]string{"-test.run", "^TestSim$", "-test.v", "-test.timeout", "0", "-sim.result",
		told, "-sim.workloads", *only,
		fmt.Sprintf("-sim.transactions=%v", *transacts), fmt.Sprintf("-sim.backups=%v", *backups)},
		args...)
	cmd := exec.CommandContext(ctx, os.Args[0], args...)
	// One processor makes runs more alike and costs less. The heap of one run is small compared
	// with the memory of the machine.
	cmd.Env = append(os.Environ(), "GOMAXPROCS=1", "GOGC=800", "GOTRACEBACK=all")
	// SIGQUIT makes the process print its goroutines before it ends.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGQUIT) }
	cmd.WaitDelay = 10 * time.Second
	// An interrupt at the terminal must reach only the soak, which ends its children itself.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.CombinedOutput()
	text, readErr := os.ReadFile(told)
	if readErr != nil {
		return nil, out, errors.Join(err, errors.New("the run told no result"))
	}
	r := new(result)
	return r, out, errors.Join(err, json.Unmarshal(text, r))
}

// total has the sums of a soak.
type total struct {
	mu         sync.Mutex
	next       uint64
	seeds      int
	virtual    time.Duration
	operations int
	// transactions and retries are sums of the fields of result.
	transactions, retries int

	failed  []uint64
	covered map[string]int
	rows    []calm.Row
}

func (s *total) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.covered
	return fmt.Sprintf("%.1f virtual hours, %d seeds, %d elections, %d crashes, %d network "+
		"partitions, %d snapshots, %d operations, "+
		"%d transactions (%d retries), %d replicas born, %d merged (%d by snapshots, %d again), %d "+
		"merges given up, %d violations", s.virtual.Hours(), s.seeds, c["elections"],
		c["crashes"], c["cuts"], c["snapshots installed"],
		s.operations, s.transactions, s.retries, c["replicas born"], c["replicas merged"],
		c["replicas merged by snapshots"], c["merges applied again"], c["merges given up"],
		len(s.failed))
}

// TestSoak runs seed after seed, each in a process of its own, on all processors: make sim-soak
// HOURS=20
func TestSoak(t *testing.T) {
	if *hours <= 0 {
		t.Skip("-sim.hours says for how long")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s := &total{next: *firstSeed, covered: make(map[string]int)}
	wanted := time.Duration(*hours * float64(time.Hour))
	began := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("[%v] "+format+"\n", append([]any{time.Since(began).Round(time.Second)},
			args...)...)
	}
	progress := time.NewTicker(time.Minute)
	defer progress.Stop()
	var workers sync.WaitGroup
	for range *parallel {
		workers.Go(func() {
			for ctx.Err() == nil {
				s.mu.Lock()
				seed, enough := s.next, s.virtual >= wanted
				s.next++
				s.mu.Unlock()
				if enough {
					return
				}
				r, out, err := child(ctx, "-sim.seed", fmt.Sprint(seed), "-sim.seeds", "1",
					"-sim.minutes", fmt.Sprint(*minutes))
				if ctx.Err() != nil {
					return
				}
				s.take(seed, r, err)
				if err != nil {
					say("seed %d FAILED: %s", seed, keep(seed, out))
				}
			}
		})
	}
	finished := make(chan struct{})
	go func() { workers.Wait(); close(finished) }()
	for done := false; !done; {
		select {
		case <-progress.C:
			say("%v", s)
		case <-finished:
			done = true
		}
	}
	say("%v", s)
	say("how operations ended:\n%s", calm.Table(s.rows))
	if len(s.failed) > 0 {
		slices.Sort(s.failed)
		t.Errorf("seeds that failed: %v; their output is in %s", s.failed, *failures)
	}
}

func (s *total) take(seed uint64, r *result, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seeds++
	if err != nil {
		s.failed = append(s.failed, seed)
	}
	if r == nil {
		return
	}
	s.virtual += r.Virtual
	s.operations += r.Operations
	s.transactions += r.Transactions
	s.retries += r.Retries
	s.rows = calm.Merge(s.rows, r.Rows)
	for what, n := range r.Covered {
		s.covered[what] += n
	}
}

// keep saves the output of a failed run, and returns its first violation.
func keep(seed uint64, out []byte) string {
	path := filepath.Join(*failures, fmt.Sprintf("seed-%d.txt", seed))
	if err := errors.Join(os.MkdirAll(*failures, 0o755), os.WriteFile(path, out,
		0o644)); err != nil {
		return err.Error()
	}
	for line := range strings.Lines(string(out)) {
		for _, word := range []string{"VIOLATION", "panic:", "fatal error:", "deadlock",
			"SIGQUIT"} {
			if strings.Contains(line, word) {
				return fmt.Sprintf("%s (%s)", strings.TrimSpace(line), path)
			}
		}
	}
	return path
}

// TestShrinkSchedule finds the smallest part of a schedule that still fails: make sim-shrink
// SCHEDULE=file
func TestShrinkSchedule(t *testing.T) {
	if *scheduleIn == "" || *hours != 0 ||
		flag.Lookup("test.run").Value.String() != "TestShrinkSchedule" {
		t.Skip("-sim.schedule names a file with a schedule that fails; this test has to be " +
			"asked for by its name")
	}
	text, err := os.ReadFile(*scheduleIn)
	if err != nil {
		t.Fatal(err)
	}
	s, err := sim.ParseSchedule(string(text))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	small, last := shrink(ctx, t, s)
	if last == nil {
		t.Fatalf("the schedule did not fail in %d runs", 3**tries)
	}
	path := filepath.Join(*failures, fmt.Sprintf("seed-%d-small.txt", s.Seed))
	if err := errors.Join(os.MkdirAll(*failures, 0o755), os.WriteFile(path, last,
		0o644)); err != nil {
		t.Error(err)
	}
	t.Logf("%d of %d faults are needed; the output of the last run that failed is in %s. The "+
		"schedule:\n%s", len(small.Faults), len(s.Faults), path, small)
}

// shrink returns the smallest failing schedule that it found, and the output of its run; no output
// if the whole schedule does not fail.
func shrink(ctx context.Context, t *testing.T, s sim.Schedule) (sim.Schedule, []byte) {
	dir := t.TempDir()
	var last []byte
	fails := func(c sim.Schedule, tries int) bool {
		path := filepath.Join(dir, "schedule")
		if err := os.WriteFile(path, []byte(c.String()), 0o644); err != nil {
			t.Fatal(err)
		}
		for range tries {
			r, out, err := child(ctx, "-sim.schedule", path)
			if ctx.Err() != nil {
				return false
			}
			if err != nil {
				last = out
				if r != nil && len(r.Violations) > 0 {
					fmt.Printf("%d faults fail: %.200s\n", len(c.Faults), r.Violations[0])
				} else {
					fmt.Printf("%d faults fail: %v\n", len(c.Faults), err)
				}
				return true
			}
		}
		fmt.Printf("%d faults pass\n", len(c.Faults))
		return false
	}
	if !fails(s, 3**tries) {
		return s, nil
	}
	s.Faults = sim.Shrink(s.Faults, func(faults []sim.Fault) bool {
		c := s
		c.Faults = faults
		return fails(c, *tries)
	})
	// Remove the end of the run after the last fault, too.
	short := s
	short.Duration = 5 * time.Second
	for _, f := range s.Faults {
		short.Duration = max(short.Duration, f.At+f.For+5*time.Second)
	}
	if short.Duration < s.Duration && fails(short, *tries) {
		s = short
	}
	return s, last
}
