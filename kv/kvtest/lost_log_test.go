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

// unmount takes a part of a server's directory away, as if it were a volume of its own, and returns
// what brings it back.
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

// nodesOf are the leader of the only partition there is, and the two other nodes of three on
// servers of their own.
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

// A replica whose state is gone, and whose log begins behind what it would need, does not open, and
// says so: it does not begin anew.
func TestReplicaThatCannotBeReplayedStaysOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registries := make([]*prometheus.Registry, 4)
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Separate: true, Latency: latency,
			Configure: func(server int, s *embedded.ServerConfig) {
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
			return measured(t, registries[without:without+1], "tidemark_raftlog_truncations_total",
				"node") > 0
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
		if pair, err := ks.Get(ctx, []byte("k")); err == nil || !strings.Contains(err.Error(),
			"lost data") {
			t.Errorf("%.10q, %v; want an error that says that the state has lost data", pair.Value,
				err)
		}
		if err := c.Stop(without); err != nil {
			t.Fatal(err)
		}
		mount()
		start(t, c, without)
		mustHold(t, ks, "k", "2")
	})
}
