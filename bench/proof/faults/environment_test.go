package faults

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
)

var (
	enabled = flag.Bool("faults", false, "run the fault tests against real processes")
	program = flag.String("tidemark", filepath.Join("..", "..", "..", "bin", "tidemark"),
		"the program under test")
	scratch = flag.String("faults.dir", "",
		"where clusters keep their data (default: the system's temporary directory)")
	rounds = flag.Int("faults.rounds", 12,
		"how many processes TestKillOne kills, one after the other; TestKillAll kills all a "+
			"quarter as often")
	maxPause = flag.Duration("faults.pause", 3*time.Second,
		"the longest pause of a partition that TestKillOne accepts")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// environment is the cluster of a test, with its client.
type environment struct {
	*testing.T
	ctx     context.Context
	dir     string
	cluster *fleet.Cluster
	admin   *fleet.Admin
}

// newEnvironment makes a directory and chooses addresses. It starts nothing. When the test ends,
// all processes are killed. If the test passed, the directory is removed, otherwise its name is
// printed. limit is the deadline of the whole test.
func newEnvironment(t *testing.T, limit time.Duration, layout fleet.Layout) *environment {
	t.Helper()
	if !*enabled {
		t.Skip("fault tests run with -faults (make faults)")
	}
	path, err := filepath.Abs(*program)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("no program to test: make it with `make build`, or name it with -tidemark: %v",
			err)
	}
	dir, err := os.MkdirTemp(*scratch, "tidemark-faults-")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	layout.Binary, layout.Dir = path, dir
	cluster, err := fleet.NewCluster(layout)
	if err != nil {
		t.Fatal(err)
	}
	e := &environment{T: t, ctx: ctx, dir: dir, cluster: cluster, admin: &fleet.Admin{Cluster: cluster}}
	t.Cleanup(func() {
		cancel()
		if err := cluster.Close(); err != nil {
			t.Errorf("end of the cluster: %v", err)
		}
		if t.Failed() {
			for _, s := range cluster.All() {
				t.Logf("%s: the log ends:\n%s", s.Name, process.Tail(s.Log, 1500))
			}
			t.Logf("directories and logs are left in %s", dir)
			return
		}
		if err := os.RemoveAll(dir); err != nil {
			t.Errorf("remove %s: %v", dir, err)
		}
	})
	return e
}

// must fails the test if err is not nil, and says what failed.
func (e *environment) must(err error, doing string, arguments ...any) {
	e.Helper()
	if err != nil {
		e.Fatalf("%s: %v", fmt.Sprintf(doing, arguments...), err)
	}
}

// start starts all servers and makes a keyspace.
func (e *environment) start(keyspace string, hash, replicas uint32) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 60*time.Second)
	defer cancel()
	begin := time.Now()
	e.must(e.cluster.Start(ctx), "start the cluster")
	ready := time.Since(begin)
	e.must(e.admin.CreateKeyspace(ctx, keyspace, hash, replicas), "create keyspace %s", keyspace)
	e.Logf("%d servers ready after %v, keyspace after %v", len(e.cluster.All()),
		ready.Round(time.Millisecond), time.Since(begin).Round(time.Millisecond))
}

// open opens the keyspace through the SDK, with a new client.
func (e *environment) open(keyspace string) *Store {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	store, err := OpenStore(ctx, e.cluster.Endpoints(), keyspace)
	e.must(err, "open keyspace %s", keyspace)
	e.Cleanup(func() {
		if err := store.Close(); err != nil {
			e.Errorf("close the client: %v", err)
		}
	})
	return store
}

// restart starts a server again and waits until it is ready.
func (e *environment) restart(s *fleet.Server) time.Duration {
	e.Helper()
	begin := time.Now()
	e.must(s.Start(), "restart %s", s.Name)
	ctx, cancel := context.WithTimeout(e.ctx, 30*time.Second)
	defer cancel()
	e.must(s.WaitReady(ctx), "restart")
	return time.Since(begin)
}

// result prints a line of the report.
func (e *environment) result(format string, arguments ...any) {
	e.Helper()
	e.Logf("RESULT "+e.Name()+": "+format, arguments...)
}

// wait waits for a condition, for at most limit.
func (e *environment) wait(limit time.Duration, what string, check func(context.Context) error) {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, limit)
	defer cancel()
	e.must(process.Until(ctx, what, 50*time.Millisecond, check), "wait")
}

// pass lets time pass while the load runs. d is how long a state lasts; use wait to wait for a
// condition.
func (e *environment) pass(d time.Duration) {
	e.Helper()
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-e.ctx.Done():
		e.Fatalf("the test took longer than it may: %v", context.Cause(e.ctx))
	}
}

// exits waits until a process ends without being stopped, and returns its exit code.
func (e *environment) exits(p *process.Process, limit time.Duration) (int, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-p.Done():
		return p.ExitCode(), nil
	case <-timer.C:
		return 0, fmt.Errorf("%s still runs after %v", p.Name(), limit)
	case <-e.ctx.Done():
		return 0, errors.New("the test took longer than it may")
	}
}
