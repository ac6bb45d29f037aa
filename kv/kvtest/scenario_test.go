package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/deploy/embedded/datadir"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

const latency = 200 * time.Microsecond

// bubble runs a test in virtual time.
func bubble(t *testing.T, test func(t *testing.T)) { synctest.Test(t, test) }

// six is a cluster of three core members and three data nodes on servers of their own: servers 0 to
// 2 and 3 to 5.
func six(t *testing.T, configure func(int, *embedded.ServerConfig)) *kvtest.Cluster {
	return kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency,
		Configure: configure})
}

func create(t *testing.T, c *kv.Client, name string, options ...kv.KeyspaceOption) *kv.Keyspace {
	t.Helper()
	ks, err := c.CreateKeyspace(t.Context(), name, options...)
	if err != nil {
		t.Fatal(err)
	}
	return ks
}

func put(t *testing.T, ks *kv.Keyspace, key, value string) {
	t.Helper()
	if _, err := ks.Put(t.Context(), []byte(key), []byte(value)); err != nil {
		t.Fatal(err)
	}
}

func mustHold(t *testing.T, ks *kv.Keyspace, key, value string) {
	t.Helper()
	pair, err := ks.Get(t.Context(), []byte(key))
	if err != nil || string(pair.Value) != value {
		t.Fatalf("%s is %.40q, %v; want %.40q", key, pair.Value, err, value)
	}
}

func ready(t *testing.T, c *kvtest.Cluster) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
}

func start(t *testing.T, c *kvtest.Cluster, server int) {
	t.Helper()
	if err := c.Run(server); err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition for a minute of the test's time.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}

// leaderOf finds the server that leads the only partition there is.
func leaderOf(t *testing.T, c *kvtest.Cluster) (server int) {
	t.Helper()
	eventually(t, "a leader", func() bool {
		for i := range c.Servers() {
			if p := c.Process(i); p != nil {
				for _, r := range p.Replicas() {
					if r.Leads {
						server = i
						return true
					}
				}
			}
		}
		return false
	})
	return server
}

// equal waits until all servers that run hold the same of every partition.
func equal(t *testing.T, c *kvtest.Cluster) {
	t.Helper()
	type state struct{ index, sum uint64 }
	eventually(t, "equal replicas", func() bool {
		seen := make(map[uint64]state)
		for i := range c.Servers() {
			p := c.Process(i)
			if p == nil {
				continue
			}
			for _, r := range p.Replicas() {
				if r.Failed != nil {
					t.Fatalf("server %d: partition %d failed: %v", i, r.Partition, r.Failed)
				}
				index, sum, err := p.Checksum(r.Partition)
				if err != nil {
					t.Fatal(err)
				}
				s := state{index, sum}
				if other, ok := seen[r.Partition]; ok && other != s {
					if other.index == index {
						t.Fatalf("partition %d differs at index %d", r.Partition, index)
					}
					return false
				}
				seen[r.Partition] = s
			}
		}
		return true
	})
}

// A leader that is cut off from its followers, but not from clients, answers no read once another
// one may have written.
func TestIsolatedLeaderServesNothingStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "old")
		old := leaderOf(t, c)
		// This client knows the old leader, will reach no other server, and believes in it.
		near := c.Client(t)
		mustHold(t, near.Keyspace("things"), "k", "old")
		for other := range c.Servers() {
			if other != old {
				c.Cut(old, other, memnet.Stall)
				c.Cut(other, old, memnet.Stall)
			}
		}
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth("client-2", c.Host(other), memnet.Stall)
			}
		}
		// And this one all servers but the old leader.
		far := c.Client(t)
		c.Network().CutBoth("client-3", c.Host(old), memnet.Stall)
		written := make(chan struct{})
		go func() {
			defer close(written)
			put(t, far.Keyspace("things"), "k", "new")
		}()
		done, served := false, 0
		for !done {
			select {
			case <-written:
				done = true
			default:
			}
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			pair, err := near.Keyspace("things").Get(ctx, []byte("k"))
			cancel()
			if err == nil {
				served++
				if done {
					t.Fatalf("read %q after another leader had acknowledged a write", pair.Value)
				}
			}
		}
		if served == 0 {
			t.Error("the old leader answered nothing at all, although its lease stood at first")
		}
		c.HealAll()
		mustHold(t, near.Keyspace("things"), "k", "new")
		equal(t, c)
	})
}

// With a full disk on one node the quorum goes on; reads are served everywhere; and when there is
// room again the node is as before.
func TestDiskFullOnOneNode(t *testing.T) {
	c := kvtest.Start(t, kvtest.Options{})
	ks := create(t, c.Client(t), "things", kv.Hash(6))
	for i := range 30 {
		put(t, ks, fmt.Sprint(i), "before")
	}
	c.Disk(1).SetFull(true)
	refused := 0
	for i := range 30 {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		_, err := ks.Put(ctx, []byte(fmt.Sprint(i)), []byte("while full"))
		cancel()
		switch {
		case err == nil:
			mustHold(t, ks, fmt.Sprint(i), "while full")
		case errors.Is(err, kv.ErrDiskFull):
			refused++
			mustHold(t, ks, fmt.Sprint(i), "before")
		case errors.Is(err, kv.ErrOutcomeUnknown):
		default:
			t.Fatal(err)
		}
	}
	if refused == 30 {
		t.Error("a full disk on one of three nodes kept all writes away")
	}
	c.Disk(1).SetFull(false)
	eventually(t, "all writes to be taken again", func() bool {
		for i := range 30 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := ks.Put(ctx, []byte(fmt.Sprint(i)), []byte("after"))
			cancel()
			if err != nil {
				return false
			}
		}
		return true
	})
	equal(t, c)
}

// A directory is for one process.
func TestSecondProcess(t *testing.T) {
	c := kvtest.Start(t, kvtest.Options{Nodes: 1})
	_, err := embedded.StartServer(t.Context(), c.Config(0))
	if !errors.Is(err, datadir.ErrUnusable) || !strings.Contains(err.Error(), "in use") {
		t.Fatal(err)
	}
	put(t, create(t, c.Client(t), "things", kv.Replicas(1)), "k", "1")
}

// A directory of another cluster is refused, and nothing in it is changed.
func TestDirectoryOfAnotherCluster(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a := kvtest.Start(t, kvtest.Options{Nodes: 1, Cores: 1, Separate: true, Latency: latency})
		b := kvtest.Start(t, kvtest.Options{Nodes: 1, Cores: 1, Separate: true, Latency: latency})
		ks := create(t, b.Client(t), "things", kv.Replicas(1), kv.Hash(1))
		put(t, ks, "k", "1")
		if err := b.Stop(1); err != nil {
			t.Fatal(err)
		}
		// The node's disk, in a server that is told of the other core.
		other := a.Config(1)
		other.FS = b.Config(1).FS
		other.Listen = "elsewhere:7400"
		s, err := embedded.StartServer(t.Context(), other)
		if err == nil {
			defer s.Close(t.Context())
			select {
			case <-s.Done():
				err = s.Err()
			case <-time.After(time.Minute):
			}
		}
		if !errors.Is(err, datadir.ErrUnusable) && (err == nil || !strings.Contains(err.Error(),
			"cluster")) {
			t.Fatalf("a node of another cluster: %v", err)
		}
		if s != nil {
			_ = s.Close(t.Context())
		}
		start(t, b, 1)
		mustHold(t, ks, "k", "1")
	})
}
