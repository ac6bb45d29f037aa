package rolling

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/bench/proof/workloads"
	"github.com/tidemarkdb/tidemark/kv"
)

var (
	upgrades = flag.Bool("rolling", false, "upgrade servers, on a machine that does nothing else")
	from     = flag.String("rolling.from", "", "the commit to begin with, instead of a release's")
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	servers = 3
	// patience is the deadline for one server to stop, start and catch up; test machines are slow.
	patience = 90 * time.Second
	// electionTimeout is the servers' default.
	electionTimeout = time.Second
	// stoodStill: if this process does not run for longer, the machine had no time for it. Then the
	// servers had no time either, and late answers prove nothing.
	stoodStill = 500 * time.Millisecond
)

// load has the workloads that run during the upgrade. A new leader of the core gives all leases
// their full time to live again, as etcd's leader does. So workloads that check how soon a lease
// ends are left out.
var load = []string{"registers", "rings", "hashed-sets", "feed", "bank", "strict-inserts",
	"ranged-dependencies", "etcd-txns", "etcd-watches", "etcd-locks"}

// Servers of the previous release and of this commit serve one cluster without an error, forwards
// and back, and after the upgrade is finalised.
func TestRollingUpgrade(t *testing.T) {
	if !*upgrades {
		t.Skip("runs with -rolling (make rolling): what other tests do beside it would delay servers")
	}
	root, release := repository(t), ""
	commit := *from
	if commit == "" {
		all, err := parse(releases)
		if err != nil {
			t.Fatal(err)
		}
		former, ok := before(all, output(t, root, "git", "rev-parse", "HEAD"))
		if !ok {
			t.Skip("there is no release before this commit")
		}
		commit, release = former.commit, former.version
	}
	dir := t.TempDir()
	old, current := build(t, root, dir, commit), build(t, root, dir, "")
	t.Logf("from %s %s to this commit", release, commit)

	c := start(t, dir, old)
	c.release = release
	judge := c.drive(t)
	for _, pass := range []struct{ what, program string }{
		{"to this commit", current}, {"back to the release before", old},
		{"to this commit again", current},
	} {
		for _, s := range c.cluster.All() {
			c.replace(t, s, pass.program)
			t.Logf("%s: %s", pass.what, s.Name)
		}
	}
	c.cli(t, current, "upgrade", "status")
	c.cli(t, current, "upgrade", "finalize")
	c.settled(t, current)
	c.goesOn(t) // with the features that finalising has enabled
	judge()
}

// knownFaults are the ends of the errors that a release before this one causes, and that are mended
// in this one. Servers of v0.1.0 do not say, when they close, that calls without an answer were not
// made.
var knownFaults = map[string]string{"v0.1.0": "desc = this server is closing"}

// cluster is a cluster under load.
type cluster struct {
	// release is the release before this commit.
	release string
	cluster *fleet.Cluster
	run     *driver.Run
	machine process.Standstill
}

// start starts a cluster that runs a program.
func start(t *testing.T, dir, program string) *cluster {
	t.Helper()
	made, err := fleet.NewCluster(fleet.Layout{Binary: program, Dir: filepath.Join(dir, "cluster"),
		Cores: servers, Configure: func(i int, s *fleet.Server) {
			s.Name, s.Roles = fmt.Sprintf("server%d", i+1), "core,node"
			s.Flags = []string{"--cache", "32MiB", "--mem-table", "4MiB", "--log-mem-table", "4MiB"}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := made.Start(ctx); err != nil {
		t.Fatal(err)
	}
	var endpoints []string
	for _, s := range made.All() {
		endpoints = append(endpoints, s.Address())
	}
	c := &cluster{cluster: made,
		run: driver.NewRun(func(ctx context.Context, options ...kv.Option) (*kv.Client, error) {
			return kv.Open(ctx, endpoints, options...)
		})}
	c.run.Weather.Look = c.look
	c.run.OpenEtcd = (&driver.EtcdService{Endpoints: endpoints}).Open
	c.settled(t, program)
	return c
}

// drive starts the load. judge ends the load, and reports violations.
func (c *cluster) drive(t *testing.T) (judge func()) {
	t.Helper()
	loads, err := workloads.Choose(load...)
	if err != nil {
		t.Fatal(err)
	}
	setup, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, load := range loads {
		if err := load.Setup(setup, c.run); err != nil {
			t.Fatalf("setting %s up: %v", load.Name(), err)
		}
	}
	driving, stop := context.WithCancel(t.Context())
	var clients, watch sync.WaitGroup
	t.Cleanup(func() { stop(); clients.Wait(); watch.Wait() })
	watch.Go(func() { c.machine.Watch(driving) })
	random := rand.New(rand.NewPCG(1, 0))
	for _, load := range loads {
		for i := range load.Clients() {
			source := rand.New(rand.NewPCG(random.Uint64(), random.Uint64()))
			client, hangUp, err := c.run.Connect(driving, load.Name())
			if err != nil {
				t.Fatalf("a client of %s: %v", load.Name(), err)
			}
			clients.Go(func() {
				defer hangUp()
				load.Drive(driving, c.run, i, client, source)
			})
		}
	}
	return func() {
		stop()
		clients.Wait()
		watch.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		client, hangUp, err := c.run.Connect(ctx, "")
		if err != nil {
			t.Fatalf("a client at the end: %v", err)
		}
		defer hangUp()
		for _, load := range loads {
			if err := load.Check(ctx, c.run, client.For(load.Name())); err != nil {
				t.Errorf("%s: %v", load.Name(), err)
			}
		}
		c.run.Judge()
		c.run.CheckHistory(c.run.History.Operations())
		for _, violation := range append(c.run.Violations(), c.run.CheckAll()...) {
			if fault := knownFaults[c.release]; fault != "" && strings.HasSuffix(violation, fault) {
				t.Logf("a fault of %s: %s", c.release, violation)
				continue
			}
			t.Error(violation)
		}
		if t.Failed() {
			t.Logf("what happened:\n%s", strings.Join(c.run.Events(), "\n"))
		}
		succeeded, _ := c.run.Transactions()
		t.Logf("%d transactions; the longest time without any success: %v", succeeded,
			c.run.Longest().Round(time.Millisecond))
	}
}

// look notices when the machine had no time for this process.
func (c *cluster) look() {
	if c.machine.Longest() > stoodStill {
		c.machine.Reset()
		c.run.Weather.Begin()
		c.run.Weather.End(calm.Settling(calm.Links, electionTimeout))
	}
}

// goesOn waits until the load has made a hundred more transactions.
func (c *cluster) goesOn(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	before, _ := c.run.Transactions()
	if err := process.Until(ctx, "transactions", 50*time.Millisecond,
		func(context.Context) error {
			if now, _ := c.run.Transactions(); now < before+100 {
				return fmt.Errorf("%d of 100 transactions", now-before)
			}
			return nil
		}); err != nil {
		t.Error(err)
	}
}

// replace restarts a server with a program.
func (c *cluster) replace(t *testing.T, s *fleet.Server, program string) {
	t.Helper()
	if err := s.Stop(patience); err != nil {
		t.Fatal(err)
	}
	if code := s.Process().ExitCode(); code != 0 {
		t.Fatalf("%s ended with %d; its log ends:\n%s", s.Name, code, s.Process().LogTail(2000))
	}
	s.Binary = program
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	c.settled(t, program)
}

// settled waits until `tidemark status` finds no problem.
func (c *cluster) settled(t *testing.T, program string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := process.Until(ctx, "tidemark status", 200*time.Millisecond,
		func(ctx context.Context) error {
			said, err := c.command(ctx, program, "status").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w:\n%s", err, said)
			}
			return nil
		}); err != nil {
		t.Fatal(err)
	}
}

// cli runs a command of a program, which must succeed.
func (c *cluster) cli(t *testing.T, program string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	said, err := c.command(ctx, program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("tidemark %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	t.Logf("tidemark %s:\n%s", strings.Join(args, " "), said)
}

func (c *cluster) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	var endpoints []string
	for _, s := range c.cluster.All() {
		endpoints = append(endpoints, s.Address())
	}
	return exec.CommandContext(ctx, program, append(args, "--endpoints",
		strings.Join(endpoints, ","))...)
}

// repository returns the top of the clone in which the test runs.
func repository(t *testing.T) string {
	t.Helper()
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, ".git")); err != nil {
		t.Skip("the sources are no clone of the repository, and have no earlier commit")
	}
	if output(t, root, "git", "rev-parse", "--is-shallow-repository") == "true" {
		t.Skip("the clone is shallow: git fetch --unshallow")
	}
	return root
}

// build builds the program of a commit; "": of the sources in the clone.
func build(t *testing.T, root, dir, commit string) (program string) {
	t.Helper()
	sources, name := root, "current"
	if commit != "" {
		name = "former"
		sources = filepath.Join(dir, "sources")
		if err := os.Mkdir(sources, 0o755); err != nil {
			t.Fatal(err)
		}
		archive := filepath.Join(dir, "sources.tar")
		output(t, root, "git", "archive", "--output", archive, commit)
		output(t, root, "tar", "-xf", archive, "-C", sources)
	}
	program = filepath.Join(dir, name)
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false",
		"-ldflags", "-s -w -X main.version="+name, "-o", program, "./cmd/tidemark")
	cmd.Dir, cmd.Env = sources, append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("building the program of %q: %v\n%s", commit, err, said)
	}
	return program
}

// output runs a program and returns its output.
func output(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	said, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, said)
	}
	return strings.TrimSpace(string(said))
}
