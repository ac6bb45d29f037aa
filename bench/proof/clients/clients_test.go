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
	"strings"
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

// limit bounds a test.
const limit = 2 * time.Minute

// cluster is three servers, each of which is a process.
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
	at, err := process.FreeAddresses(3)
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t, at: at, servers: make([]*process.Process, 3)}
	dir := t.TempDir()
	for i := range at {
		c.dir = append(c.dir, filepath.Join(dir, fmt.Sprint("server-", i+1)))
		c.start(i)
	}
	t.Cleanup(c.close)
	c.leader()
	return c
}

func (c *cluster) log(i int) string { return c.dir[i] + ".log" }

func (c *cluster) start(i int) {
	c.t.Helper()
	p, err := process.Start(process.Config{Name: fmt.Sprint("server ", i+1), Path: *program,
		Args: []string{"start", "--dir", c.dir[i], "--listen", c.at[i], "--roles", "core", "--insecure",
			"--core", strings.Join(c.at, ",")}, Log: c.log(i)})
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

// leader waits until a server leads, and gives its number.
func (c *cluster) leader() (leader int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	err := process.Until(ctx, "the coordination store has a leader", 50*time.Millisecond,
		func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
			defer cancel()
			client, err := clientv3.New(clientv3.Config{Endpoints: c.at, Logger: zap.NewNop()})
			if err != nil {
				return err
			}
			defer client.Close()
			for i, at := range c.at {
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

// run runs a client, and kills the leader when it asks for that. The addresses are in ENDPOINTS,
// that of the leader at first.
func (c *cluster) run(dir, path string, args ...string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), limit)
	defer cancel()
	leader := c.leader()
	order := append(append([]string(nil), c.at[leader:]...), c.at[:leader]...)
	command := exec.CommandContext(ctx, path, args...)
	command.Dir = dir
	command.Env = append(os.Environ(), "ENDPOINTS="+strings.Join(order, ","))
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
	c := start(t)
	c.run(nodePackages(t), "node", "client.js")
}

// nodePackages is a directory with the client and what it needs, which is kept in the user's cache.
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

// TestPython runs the package python3-etcd3 of Debian.
func TestPython(t *testing.T) {
	c := start(t)
	const python = "/usr/bin/python3" // that of the distribution, which sees its packages
	if exec.Command(python, "-c", "import etcd3").Run() != nil {
		installed(t, "", "apt-get", "-q", "update")
		installed(t, "", "apt-get", "-q", "-y", "install", "--no-install-recommends", "python3-etcd3")
	}
	c.run("python", python, "client.py")
}

// TestEtcdctl runs etcd's own program.
func TestEtcdctl(t *testing.T) {
	c := start(t)
	programs, err := reference.Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	c.run("etcdctl", "bash", "client.sh", programs.Etcdctl)
}
