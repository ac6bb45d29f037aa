package kvtest_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// unmount takes a part of a server's directory away, as if it were a volume of its own, and returns what brings it back.
func unmount(t *testing.T, c *kvtest.Cluster, server int, part string) (mount func()) {
	t.Helper()
	mem, dir := c.Disk(server).Mem(), c.Config(server).Dir
	from, to := mem.PathJoin(dir, part), dir+"-elsewhere"
	if err := mem.Rename(from, to); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := errors.Join(mem.RemoveAll(from), mem.Rename(to, from)); err != nil {
			t.Fatal(err)
		}
	}
}

// mustBeRefused starts a server whose log is gone.
func mustBeRefused(t *testing.T, c *kvtest.Cluster, server int, log string) {
	t.Helper()
	err := c.Run(server)
	if !errors.Is(err, embedded.ErrDirectory) || !strings.Contains(err.Error(), log) || !strings.Contains(err.Error(), "the log of acknowledged writes is missing") {
		t.Errorf("a server without %s starts: %v", log, err)
	}
}

// nodesOf are the leader of the only partition there is, and the two other nodes of three on servers of their own.
func nodesOf(t *testing.T, c *kvtest.Cluster) (leader int, others []int) {
	t.Helper()
	leader = leaderOf(t, c)
	for i := range c.Servers() {
		if i != leader && c.Process(i).NodeID() != 0 {
			others = append(others, i)
		}
	}
	return leader, others
}

// A node whose log is gone while its name is there, as of a volume that was not mounted, does not vote as the node that it was: with a
// node that was down, it would be a majority that has never heard of a write that it has acknowledged itself.
func TestNodeWithoutItsLogStaysOut(t *testing.T) {
	for _, gone := range []string{"node", "node/log"} {
		t.Run(gone, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency})
				ks := create(t, c.Client(t), "things", kv.Range())
				put(t, ks, "k", "1")
				leader, others := nodesOf(t, c)
				late, without := others[0], others[1]
				c.Kill(late, 0)
				put(t, ks, "k", "2")
				c.KillAll(0, leader, without)
				mount := unmount(t, c, without, gone)
				mustBeRefused(t, c, without, "/tidemark/node/log")
				start(t, c, late)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if pair, err := ks.Get(ctx, []byte("k")); err == nil {
					t.Errorf("one node of three answers with %q; acknowledged was 2", pair.Value)
				}
				mount()
				start(t, c, without)
				mustHold(t, ks, "k", "2")
			})
		})
	}
}

// A node whose state is gone has all of it in its log, where that begins with the first entry.
func TestNodeWithoutItsStateReplaysItsLog(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		leader, others := nodesOf(t, c)
		late, without := others[0], others[1]
		c.Kill(late, 0)
		put(t, ks, "k", "2")
		c.KillAll(0, leader, without)
		unmount(t, c, without, "node/state")
		start(t, c, without)
		start(t, c, late)
		mustHold(t, ks, "k", "2")
		start(t, c, leader)
		equal(t, c)
	})
}

// A replica whose state is gone, and whose log begins behind what it would need, does not open, and says so: it does not begin anew.
func TestReplicaThatCannotBeReplayedStaysOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registries := make([]*prometheus.Registry, 4)
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency, Configure: func(server int, s *embedded.ServerConfig) {
			registries[server] = prometheus.NewRegistry()
			s.Registry, s.RetainLogBytes, s.MemTableBytes = registries[server], 16<<10, 64<<10
		}})
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		leader, others := nodesOf(t, c)
		late, without := others[0], others[1]
		value := strings.Repeat("v", 8<<10)
		eventually(t, "a log that does not begin with the first entry", func() bool {
			put(t, ks, "filler", value)
			return measured(t, registries[without:without+1], "tidemark_raftlog_truncations_total", "node") > 0
		})
		c.Kill(late, 0)
		put(t, ks, "k", "2")
		for _, server := range []int{leader, without} {
			if err := c.Stop(server); err != nil {
				t.Fatal(err)
			}
		}
		mount := unmount(t, c, without, "node/state")
		start(t, c, without)
		start(t, c, late)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if pair, err := ks.Get(ctx, []byte("k")); err == nil || !strings.Contains(err.Error(), "lost data") {
			t.Errorf("%.10q, %v; want an error that says that the state has lost data", pair.Value, err)
		}
		if err := c.Stop(without); err != nil {
			t.Fatal(err)
		}
		mount()
		start(t, c, without)
		mustHold(t, ks, "k", "2")
	})
}

// The same for a member of the core: it does not vote without its log.
func TestCoreMemberWithoutItsLogStaysOut(t *testing.T) {
	for _, gone := range []string{"core", "core/log"} {
		t.Run(gone, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				client := c.Client(t)
				create(t, client, "before", kv.Range())
				lead := 0
				eventually(t, "a leader of the core", func() bool {
					for i := range 3 {
						if c.Process(i).LeadsCore() {
							lead = i
							return true
						}
					}
					return false
				})
				late, without := (lead+1)%3, (lead+2)%3
				c.Kill(late, 0)
				create(t, client, "acknowledged", kv.Range())
				c.KillAll(0, lead, without)
				mount := unmount(t, c, without, gone)
				mustBeRefused(t, c, without, "/tidemark/core/log")
				start(t, c, late)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if all, err := client.Keyspaces(ctx); err == nil {
					t.Errorf("one member of three answers with %v", all)
				}
				mount()
				start(t, c, without)
				all, err := client.Keyspaces(t.Context())
				if err != nil || len(all) != 2 {
					t.Errorf("%v, %v; want both keyspaces", all, err)
				}
			})
		})
	}
}

// A server that is core and node, and has lost its node's log, goes on as a member of the core alone.
func TestCoreMemberGoesOnWithoutItsNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		alone := false
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency, Configure: func(server int, s *embedded.ServerConfig) {
			if server == 0 && alone {
				s.Roles = []string{embedded.RoleCore}
			}
		}})
		client := c.Client(t)
		create(t, client, "things", kv.Range())
		c.Kill(0, 0)
		unmount(t, c, 0, "node/log")
		err := c.Run(0)
		if !errors.Is(err, embedded.ErrDirectory) || !strings.Contains(err.Error(), "--roles core") {
			t.Errorf("%v; want an error that says how the core goes on", err)
		}
		alone = true
		start(t, c, 0)
		// The core needs it.
		c.Kill(1, 0)
		if _, err := client.Keyspaces(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
