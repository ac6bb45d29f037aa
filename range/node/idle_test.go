package node

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// value reads one metric.
func value(t *testing.T, r *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			m := f.GetMetric()[0]
			return m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// Many idle partitions cost no goroutines, no ticks, no messages and no transfers; and all of them
// come back after a restart of everything.
func TestManyIdlePartitions(t *testing.T) {
	const count = 600
	synctest.Test(t, func(t *testing.T) {
		registries := make(map[keys.NodeID]*prometheus.Registry)
		c := newCluster(t, 3, func(config *Config) {
			registries[config.ID] = prometheus.NewRegistry()
			config.Registerer = registries[config.ID]
		})
		before := runtime.NumGoroutine()
		partitions := c.createHash(2, count)
		c.await("every partition is led where it is preferred", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		asleep := func() bool {
			for _, r := range registries {
				if value(t, r, "tidemark_host_awake_groups") != 0 {
					return false
				}
			}
			return true
		}
		c.await("all groups sleep", 30*time.Second, asleep)
		if n := runtime.NumGoroutine() - before; n > 50 {
			t.Errorf("%d partitions brought %d goroutines", count, n)
		}
		watched := []string{"tidemark_node_campaigns_total", "tidemark_node_leader_transfers_total",
			"tidemark_node_gc_runs_total", "tidemark_node_partition_reports_total"}
		time.Sleep(time.Minute)
		at := make(map[string]float64)
		for id, r := range registries {
			for _, name := range watched {
				at[name+id.String()] = value(t, r, name)
			}
		}
		for range 100 {
			time.Sleep(6 * time.Second)
			if !asleep() {
				t.Fatal("an idle group woke up")
			}
		}
		for id, r := range registries {
			for _, name := range watched {
				if now := value(t, r, name); now != at[name+id.String()] {
					t.Errorf("node %s: %s went from %v to %v with nothing going on", id, name,
						at[name+id.String()], now)
				}
			}
		}
		for _, m := range c.nodes {
			m.crash()
		}
		for _, m := range c.nodes {
			m.start()
		}
		c.await("every partition is led where it is preferred again", 15*time.Second,
			func() bool { return c.asPreferred(partitions) })
		for _, m := range c.nodes {
			if ready, why := m.Ready(); !ready {
				t.Errorf("node %d: %s", m.id, why)
			}
		}
		c.await("all groups sleep again", 30*time.Second, asleep)
		c.mustPut(partitions[count/2], "k", "v")
		// One node restarts: it learns which replicas lead without disturbing them.
		c.nodes[2].crash()
		c.await("the others lead everything", 10*time.Second, func() bool {
			for _, p := range partitions {
				if node, _ := c.believedLeader(p.Id); node == 0 {
					return false
				}
			}
			return true
		})
		c.nodes[2].start()
		c.await("leaders are spread again", 2*time.Minute,
			func() bool { return c.asPreferred(partitions) })
		c.await("all groups sleep in the end", 30*time.Second, asleep)
	})
}

func TestSubscribe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 2500)
		c.await("partitions are led", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		ctx, cancel := context.WithCancel(context.Background())
		seen, completed, largest := table.New(), 0, 0
		led := make(map[uint64]uint64)
		done := make(chan error)
		go func() {
			done <- c.nodes[3].Subscribe(ctx, func(u *clusterpb.TableUpdate) error {
				seen = seen.With(u)
				if u.Complete {
					completed++
				}
				largest = max(largest, len(u.Partitions), len(u.Leaders))
				for _, l := range u.Leaders {
					led[l.Partition] = l.Node
				}
				return nil
			})
		}()
		check := func(want []*clusterpb.Partition) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if len(seen.Partitions()) != len(want) || len(seen.Nodes()) != 3 {
				t.Errorf("the subscriber has %d partitions, %d nodes", len(seen.Partitions()),
					len(seen.Nodes()))
			}
			for _, p := range want {
				if seen.Partition(keys.PartitionID(p.Id)) == nil ||
					led[p.Id] != p.Replicas[0].Node {
					t.Fatalf("the subscriber has %v, led by %d",
						seen.Partition(keys.PartitionID(p.Id)), led[p.Id])
				}
			}
			if completed != 1 || largest > 1000 {
				t.Errorf("%d complete tables, at most %d in a message", completed, largest)
			}
		}
		check(partitions)
		more := c.createHash(3, 10)
		check(append(partitions, more...))
		c.core.update(&clusterpb.TableUpdate{RemovedPartitions: []uint64{more[0].Id}})
		check(append(partitions, more[1:]...))
		cancel()
		if err := <-done; err != context.Canceled {
			t.Errorf("the subscription ended with %v", err)
		}
	})
}

func TestGarbageIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 3)
		p := partitions[0]
		for i := range 50 {
			c.mustPut(p, "k", fmt.Sprint(i))
		}
		versions := func() (n uint64) {
			for _, m := range c.nodes {
				n = max(n, m.replicas.Get(keys.PartitionID(p.Id)).Replica.Stats().Versions)
			}
			return n
		}
		time.Sleep(40 * time.Minute)
		if n := versions(); n != 50 {
			t.Errorf("%d versions are left within the window", n)
		}
		c.await("old versions go after the window", 90*time.Minute,
			func() bool { return versions() == 1 })
		c.mustGet(p, "k", "49")
		for _, m := range c.nodes {
			c.await("nothing waits for garbage collection", 2*time.Hour,
				func() bool { return m.collector.Waiting() == 0 })
		}
		// A window that changes counts from then on.
		c.core.update(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{Id: 2, Name: "ks2",
			GcWindowSeconds: 10}}})
		c.mustPut(p, "k", "last")
		c.await("with a short window they go soon", 5*time.Minute,
			func() bool { return versions() == 1 })
	})
}

func TestStateIsFlushedSoThatLogsCanGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(config *Config) {
			config.UnflushedBytes, config.RetainLogBytes = 256<<10, 64<<10
		})
		p := c.createHash(2, 1)[0]
		value := string(make([]byte, 16<<10))
		for i := range 100 {
			c.mustPut(p, fmt.Sprint(i), value)
		}
		time.Sleep(10 * time.Second)
		for _, m := range c.nodes {
			applied := m.replicas.Get(keys.PartitionID(p.Id)).Group.Applied()
			durable, err := m.replicas.Get(keys.PartitionID(p.Id)).Replica.DurableApplied()
			if err != nil || durable+20 < applied {
				t.Errorf("node %d: applied %d, durable %d, %v", m.id, applied, durable, err)
			}
		}
	})
}

// A replica that does not open keeps neither the node nor the partition from serving.
func TestABrokenReplica(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 4)
		for i, p := range partitions {
			c.mustPut(p, "k", fmt.Sprint(i))
		}
		m := c.nodes[1]
		p := partitions[0]
		if err := m.state.Flush(); err != nil {
			t.Fatal(err)
		}
		b := m.state.NewBatch()
		if err := b.Set(keys.LocalKey(keys.PartitionID(p.Id), keys.SuffixApplied),
			[]byte("nonsense"), nil); err != nil {
			t.Fatal(err)
		}
		if err := m.state.Commit(b); err != nil {
			t.Fatal(err)
		}
		b.Close()
		m.stop()
		m.start()
		c.awaitServing(m)
		q := get(p, 1, "k")
		if r := c.ask(1, q)[q.Id]; r.GetError().GetCode() != kvpb.ErrorCode_REPLICA_DAMAGED {
			t.Errorf("the node answers %v", r)
		}
		for i, p := range partitions {
			c.mustGet(p, "k", fmt.Sprint(i))
		}
		c.await("the node is ready", 30*time.Second,
			func() bool { ready, _ := m.Ready(); return ready })
		time.Sleep(10 * time.Second)
		if m.replicas.Get(keys.PartitionID(p.Id)) != nil {
			t.Error("the broken replica was replaced")
		}
	})
}

func TestADamagedCacheIsNotUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 4)
		c.mustPut(partitions[0], "k", "v")
		m := c.nodes[1]
		b := m.log.NewBatch()
		if err := b.Set(table.Key(table.KindPartition, partitions[1].Id), []byte("nonsense"),
			nil); err != nil {
			t.Fatal(err)
		}
		if err := m.log.Commit(b, true); err != nil {
			t.Fatal(err)
		}
		b.Close()
		m.crash()
		c.core.setDown(true)
		m.start()
		if m.Table().Complete {
			t.Error("a damaged table is in use")
		}
		time.Sleep(10 * time.Second)
		if n := len(m.replicas.All()); n != 4 {
			t.Errorf("%d replicas are open", n)
		}
		c.core.setDown(false)
		c.await("the core sends the table", 20*time.Second,
			func() bool { return m.Table().Complete })
		if t2, err := table.Read(m.log, testCluster); err != nil || len(t2.Partitions()) != 4 {
			t.Errorf("the table on disk: %d partitions, %v", len(t2.Partitions()), err)
		}
		c.mustGet(partitions[0], "k", "v")
	})
}

func TestMalformedAndMisroutedRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 3)
		c.await("partitions are led", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		foreign := &clusterpb.Partition{
			Id: 900, Keyspace: 9, Start: keys.KeyspacePrefix(9), End: keys.KeyspacePrefix(10),
			PrefixLength: 4, Generation: 1, Membership: 1,
			Replicas: []*clusterpb.Replica{{Node: 2, Replica: 1}},
		}
		c.core.update(&clusterpb.TableUpdate{Partitions: []*clusterpb.Partition{foreign}})
		time.Sleep(time.Second)
		requests := []*kvpb.Request{
			{Id: 1, Partition: partitions[0].Id},
			{
				Id:        2,
				Partition: 77,
				Command:   &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k")}},
			},
			{
				Id:        3,
				Partition: 900,
				Command:   &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k")}},
			},
			{Id: 4, Command: &kvpb.Request_Now{}},
			{Id: 5, Partition: partitions[0].Id, Generation: 1, Command: &kvpb.Request_Put{}},
			{Id: 6, Partition: partitions[0].Id, Generation: 1, Command: &kvpb.Request_Get{}},
			{Id: 7, Partition: partitions[0].Id, Generation: 1, Command: &kvpb.Request_Scan{}},
			{Id: 8, Partition: partitions[0].Id, Generation: 1, Sequence: 1,
				Command: &kvpb.Request_CompareAndSwap{}},
			{Id: 9, Partition: partitions[0].Id, Generation: 1, Sequence: 1,
				Command: &kvpb.Request_WriteBatch{}},
			{Id: 10, Partition: partitions[0].Id, Generation: 1, Command: &kvpb.Request_BatchGet{}},
			{Id: 11, Partition: partitions[0].Id, Generation: 1, Command: &kvpb.Request_Count{}},
			{Id: 12, Partition: partitions[0].Id, Generation: 1, Sequence: 1,
				Command: &kvpb.Request_DeleteRange{}},
		}
		answers := c.ask(1, requests...)
		for id, code := range map[uint64]kvpb.ErrorCode{
			1: kvpb.ErrorCode_INVALID_ARGUMENT, 2: kvpb.ErrorCode_PARTITION_NOT_FOUND,
			3: kvpb.ErrorCode_PARTITION_NOT_FOUND,
		} {
			if got := answers[id].GetError().GetCode(); got != code {
				t.Errorf("request %d: %s, want %s", id, got, code)
			}
		}
		for id, r := range answers {
			if code := r.GetError().GetCode(); id >= 5 && code != kvpb.ErrorCode_INVALID_ARGUMENT {
				t.Errorf("request %d: %s", id, code)
			}
			if r.GetNow() == nil {
				t.Errorf("the answer to request %d has no timestamp", id)
			}
		}
		if got := answers[3].GetError().GetPartitions(); len(got) != 1 || got[0].Id != 900 {
			t.Errorf("no descriptor for a partition that is elsewhere: %v", got)
		}
		if answers[4].GetNowResult().GetNode() != 1 {
			t.Errorf("Now: %v", answers[4])
		}
	})
}
