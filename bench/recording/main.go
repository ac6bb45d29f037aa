package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/process"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

const (
	servers    = 3
	clients    = 16
	partitions = 16
	keyspace   = "orders"
	// seconds is how long the load lasts. The server is killed and started again after killedAfter
	// and startedAfter seconds.
	seconds, killedAfter, startedAfter = 14, 4, 9
)

func main() {
	out := flag.String("out", "docs/images/kill-9.svg", "file of the recording")
	program := flag.String("tidemark", "bin/tidemark", "Tidemark's program")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := record(ctx, *program, *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

// record makes a recording and writes it to a file.
func record(ctx context.Context, program, out string) error {
	dir, err := os.MkdirTemp("", "tidemark-recording-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := start(program, dir)
	if err != nil {
		return err
	}
	defer c.kill()
	client, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	ks, err := client.CreateKeyspace(ctx, keyspace, kv.Hash(partitions))
	if err != nil {
		return err
	}
	screen := begin()
	screen.command("tidemark start --dir /data --core $CORE   # three servers, here on one machine")
	screen.command(fmt.Sprintf("tidemark keyspace create %s --partitions hash:%d", keyspace,
		partitions))
	screen.note("%d clients write, each after the answer to its write before. Every write is synced",
		clients)
	screen.note("to the disks of a majority before it is acknowledged.")
	l := startLoad(ctx, ks)
	if err := c.fault(ctx, client, screen, l); err != nil {
		return err
	}
	l.stop()
	lost, err := l.verify(ctx, ks)
	if err != nil {
		return err
	}
	if lost > 0 {
		return fmt.Errorf("%d acknowledged writes are lost", lost)
	}
	screen.note("")
	screen.result("%s acknowledged writes read back: 0 lost, %d calls failed",
		thousands(l.acknowledged()), l.failed.Load())
	return os.WriteFile(out, screen.svg(), 0o644)
}

// fault shows the load, second by second, while a server is killed and started again.
func (c *cluster) fault(ctx context.Context, client *kv.Client, screen *screen, l *load) error {
	victim := 0
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for second := 1; second <= seconds; second++ {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		screen.second(second, l.look())
		switch second {
		case killedAfter:
			most, leads, err := c.leadsMost(ctx, client)
			if err != nil {
				return err
			}
			victim = most
			screen.command(fmt.Sprintf("kill -9 $SERVER%d   # it leads %d of %d partitions", victim+1, leads, partitions))
			if err := c.processes[victim].Kill(); err != nil {
				return err
			}
		case startedAfter:
			screen.command(fmt.Sprintf("tidemark start --dir /data --core $CORE   # server %d again", victim+1))
			if err := c.start(victim); err != nil {
				return err
			}
		}
	}
	return nil
}

// cluster is a cluster of three servers on this machine.
type cluster struct {
	program, dir    string
	addresses, http []string
	processes       []*process.Process
}

func start(program, dir string) (*cluster, error) {
	all, err := process.FreeAddresses(2 * servers)
	if err != nil {
		return nil, err
	}
	c := &cluster{program: program, dir: dir, addresses: all[:servers], http: all[servers:],
		processes: make([]*process.Process, servers)}
	for i := range servers {
		if err := c.start(i); err != nil {
			c.kill()
			return nil, err
		}
	}
	return c, nil
}

// start starts server i with its directory.
func (c *cluster) start(i int) (err error) {
	name := fmt.Sprintf("server%d", i+1)
	c.processes[i], err = process.Start(process.Config{Name: name, Path: c.program,
		Args: []string{"start", "--dir", filepath.Join(c.dir, name), "--listen", c.addresses[i], "--core",
			strings.Join(c.addresses, ","), "--http", c.http[i]}, Log: filepath.Join(c.dir, name+".log")})
	return err
}

func (c *cluster) kill() {
	for _, p := range c.processes {
		if p != nil {
			_ = p.Kill()
		}
	}
}

// open opens a client, and waits until the cluster has all its nodes.
func (c *cluster) open(ctx context.Context) (*kv.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		client, err := kv.Open(ctx, c.addresses)
		if err == nil {
			nodes, failed := admin.New(client).Nodes(ctx)
			if len(nodes) == servers {
				return client, nil
			}
			err = errors.Join(failed, client.Close())
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the servers are not ready: %w", errors.Join(ctx.Err(), err))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// leadsMost returns the server whose node leads most partitions of the keyspace, and how many.
func (c *cluster) leadsMost(ctx context.Context, client *kv.Client) (victim, leads int, err error) {
	nodes, err := admin.New(client).Nodes(ctx)
	if err != nil {
		return 0, 0, err
	}
	all, err := admin.New(client).Partitions(ctx, keyspace)
	if err != nil {
		return 0, 0, err
	}
	for _, n := range nodes {
		led := 0
		for _, p := range all {
			if p.Leader == n.ID {
				led++
			}
		}
		for i, address := range c.addresses {
			if address == n.Address && led > leads {
				victim, leads = i, led
			}
		}
	}
	if leads == 0 {
		return 0, 0, errors.New("no server leads a partition")
	}
	return victim, leads, nil
}

// load is the load of a recording: each client writes its own keys, one after the other.
type load struct {
	cancel  context.CancelFunc
	running sync.WaitGroup
	failed  atomic.Int64
	// done counts the acknowledged writes of each client: these are the writes 0 to done-1.
	done [clients]atomic.Int64

	mu      sync.Mutex
	writes  int
	slowest time.Duration
}

// patience is how long a client waits for the acknowledgement of a write.
const patience = 10 * time.Second

func startLoad(ctx context.Context, ks *kv.Keyspace) *load {
	l := &load{}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range clients {
		l.running.Go(func() {
			for ctx.Err() == nil {
				l.write(ctx, ks, i)
			}
		})
	}
	return l
}

// write makes a client write its next key. It repeats a write that failed.
func (l *load) write(ctx context.Context, ks *kv.Keyspace, client int) {
	// A write that has begun is not given up when the load ends.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	began := time.Now()
	key := keyOf(client, l.done[client].Load())
	if _, err := ks.Put(limited, key, key); err != nil {
		l.failed.Add(1)
		return
	}
	took := time.Since(began)
	l.done[client].Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.writes++
	l.slowest = max(l.slowest, took)
}

func keyOf(client int, n int64) []byte { return fmt.Appendf(nil, "order-%02d-%08d", client, n) }

// second has the figures of one second of load.
type second struct {
	writes  int
	failed  int64
	slowest time.Duration
}

// look returns the figures since the last look.
func (l *load) look() second {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := second{writes: l.writes, failed: l.failed.Load(), slowest: l.slowest}
	l.writes, l.slowest = 0, 0
	return s
}

func (l *load) stop() {
	l.cancel()
	l.running.Wait()
}

func (l *load) acknowledged() (n int64) {
	for i := range l.done {
		n += l.done[i].Load()
	}
	return n
}

// verify reads all acknowledged writes, and returns the number of lost ones.
func (l *load) verify(ctx context.Context, ks *kv.Keyspace) (lost int64, err error) {
	found := make(map[string]bool)
	for p, err := range ks.Scan(ctx) {
		if err != nil {
			return 0, err
		}
		found[string(p.Key)] = bytes.Equal(p.Key, p.Value)
	}
	for i := range l.done {
		for n := range l.done[i].Load() {
			if !found[string(keyOf(i, n))] {
				lost++
			}
		}
	}
	return lost, nil
}
