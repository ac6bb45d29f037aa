package clients

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/bench/proof/reference"
)

var (
	enabled = flag.Bool("clients", false, "run unmodified clients of etcd against real processes")
	program = flag.String("tidemark", filepath.Join("..", "..", "..", "bin", "tidemark"),
		"the program to run")
)

// limit is the deadline of a test.
const limit = 2 * time.Minute

// members is the number of servers that are members of the core. The last server is a data node,
// and no member.
const members = 3

// cluster is four servers. Each of them is a process.
type cluster struct {
	t       *testing.T
	dir, at []string
	servers []*process.Process
}

func start(t *testing.T) *cluster {
	t.Helper()
	if !*enabled {
		t.Skip("run it with -clients, or by `make clients`")
	}
	if _, err := os.Stat(*program); err != nil {
		t.Fatalf("%v: build it with `make build`", err)
	}
	at, err := process.FreeAddresses(members + 1)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, at: at, servers: make([]*process.Process, members+1)}
	dir := t.TempDir()
	for i := range at {
		c.dir = append(c.dir, filepath.Join(dir, fmt.Sprint("server-", i+1)))
		c.start(i)
	}
	t.Cleanup(c.close)
	c.leader()
	c.serves(members)
	return c
}

func (c *cluster) log(i int) string { return c.dir[i] + ".log" }

func (c *cluster) start(i int) {
	c.t.Helper()
	role := "core"
	if i >= members {
		role = "node"
	}
	p, err := process.Start(process.Config{Name: fmt.Sprint("server ", i+1), Path: *program,
		Args: []string{"start", "--dir", c.dir[i], "--listen", c.at[i], "--roles", role, "--insecure",
			"--core", strings.Join(c.at[:members], ",")}, Log: c.log(i)})
	if err != nil {
		c.t.Fatal(err)
	}
	c.servers[i] = p
}

func (c *cluster) close() {
	for i, p := range c.servers {
		if err := p.Kill(); err != nil {
			c.t.Error(err)
		}
		if c.t.Failed() {
			c.t.Logf("the log of server %d ends:\n%s", i+1, process.Tail(c.log(i), 2000))
		}
	}
}

// leader waits until a server leads, and returns its number.
func (c *cluster) leader() (leader int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	err := process.Until(ctx, "the coordination store has a leader", 50*time.Millisecond,
		func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			client, err := clientv3.New(clientv3.Config{Endpoints: c.at[:members],
				Logger: zap.NewNop()})
			if err != nil {
				return err
			}
			defer client.Close()
			for i, at := range c.at[:members] {
				status, err := client.Status(ctx, at)
				if err != nil {
					return err
				}
				if status.Leader == status.Header.MemberId {
					leader = i
					return nil
				}
			}
			return fmt.Errorf("none leads")
		}, c.servers...)
	if err != nil {
		c.t.Fatal(err)
	}
	return leader
}

// serves waits until a server answers.
func (c *cluster) serves(i int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	client, err := clientv3.New(clientv3.Config{Endpoints: c.at[i : i+1], Logger: zap.NewNop()})
	if err != nil {
		c.t.Fatal(err)
	}
	defer client.Close()
	if err := process.Until(ctx, "the server answers", 50*time.Millisecond,
		func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			_, err := client.Get(ctx, "k")
			return err
		}, c.servers[i]); err != nil {
		c.t.Fatal(err)
	}
}

// kinds are the lists of servers that a client gets: the members of the core, with the leader
// first; the data node alone; all servers, with the data node last.
var kinds = map[string]func(at []string, leader int) []string{
	"members": func(at []string, leader int) []string {
		return slices.Concat(at[leader:members], at[:leader])
	},
	"node": func(at []string, _ int) []string { return at[members:] },
	"all": func(at []string, leader int) []string {
		return slices.Concat(at[leader:members], at[:leader], at[members:])
	},
}

// forKinds runs a client with each list of addresses, against a new cluster.
func forKinds(t *testing.T, dir, path string, args ...string) {
	t.Helper()
	for name, of := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			start(t).run(of, dir, path, args...)
		})
	}
}

// run runs a client, and kills the leader when the client asks for that. The addresses are in
// ENDPOINTS.
func (c *cluster) run(of func([]string, int) []string, dir, path string, args ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	leader := c.leader()
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = dir
	endpoints := of(c.at, leader)
	command.Env = append(os.Environ(), "ENDPOINTS="+strings.Join(endpoints, ","))
	if slices.Contains(endpoints, c.at[members]) {
		command.Env = append(command.Env, "PASSED_ON=1")
	}
	var said, wrong bytes.Buffer
	command.Stderr = &wrong
	in, err := command.StdinPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		c.t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		c.t.Fatal(err)
	}
	killed := false
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fmt.Fprintln(&said, lines.Text())
		if lines.Text() == "KILL" && !killed {
			killed = true
			if err := c.servers[leader].Kill(); err != nil {
				c.t.Error(err)
			}
			_, _ = io.WriteString(in, "\n")
		}
	}
	if err := command.Wait(); err != nil || !killed {
		c.t.Errorf("%s: %v (killed a server: %v)\n%s%s", filepath.Base(path), err, killed,
			&said, &wrong)
	}
}

// installed runs a command that installs something.
func installed(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	command := exec.CommandContext(ctx, name, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("this test needs what `%s %s` installs, and that failed: %v\n%s", name,
			strings.Join(args, " "), err, out)
	}
}

// TestNode runs the package etcd3 of Node.
func TestNode(t *testing.T) {
	if !*enabled {
		t.Skip("run it with -clients, or by `make clients`")
	}
	forKinds(t, nodePackages(t), "node", "client.js")
}

// nodePackages returns the directory of the client and its dependencies, in the user's cache.
func nodePackages(t *testing.T) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.New()
	files := make(map[string][]byte)
	for _, name := range []string{"package.json", "package-lock.json", "client.js"} {
		text, err := os.ReadFile(filepath.Join("node", name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = text
		if name != "client.js" {
			sum.Write(text)
		}
	}
	dir := filepath.Join(cache, "tidemark", "clients", "node-"+hex.EncodeToString(sum.Sum(nil)[:6]))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err != nil {
		installed(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		if err := os.WriteFile(done, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestGo runs etcd's client for Go while one server after the other stops and starts again. No call
// fails.
func TestGo(t *testing.T) {
	c := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var calling sync.WaitGroup
	stop := make(chan struct{})
	for i := range c.at {
		endpoints := slices.Concat(c.at[i:], c.at[:i])
		client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		calling.Go(func() { callOften(ctx, t, client, fmt.Sprint("k", i), stop) })
	}
	defer func() { // before the clients are closed
		close(stop)
		calling.Wait()
	}()
	for i := range c.at {
		if err := c.servers[i].Stop(20 * time.Second); err != nil {
			t.Errorf("server %d: %v", i+1, err)
		}
		c.start(i)
		c.leader()
		c.serves(i)
	}
}

// callOften writes and reads until stop is closed.
func callOften(ctx context.Context, t *testing.T, client *clientv3.Client, key string,
	stop <-chan struct{}) {
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		value := fmt.Sprint(n)
		if _, err := client.Put(ctx, key, value); err != nil {
			t.Errorf("put %s: %v", key, err)
			return
		}
		got, err := client.Get(ctx, key)
		if err != nil || len(got.Kvs) != 1 || string(got.Kvs[0].Value) != value {
			t.Errorf("get %s after %s was put: %v, %v", key, value, got, err)
			return
		}
	}
}

// TestPython runs the package python3-etcd3 of Debian.
func TestPython(t *testing.T) {
	if !*enabled {
		t.Skip("run it with -clients, or by `make clients`")
	}
	const python = "/usr/bin/python3" // of the distribution, which finds its packages
	if exec.Command(python, "-c", "import etcd3").Run() != nil {
		installed(t, "", "apt-get", "-q", "update")
		installed(t, "", "apt-get", "-q", "-y", "install", "--no-install-recommends", "python3-etcd3")
	}
	forKinds(t, "python", python, "client.py")
}

// TestEtcdctl runs etcd's own program.
func TestEtcdctl(t *testing.T) {
	if !*enabled {
		t.Skip("run it with -clients, or by `make clients`")
	}
	programs, err := reference.Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	forKinds(t, "etcdctl", "bash", "client.sh", programs.Etcdctl)
}
