package kvtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// counted sums a counter over registries.
func counted(t *testing.T, registries []*prometheus.Registry, name string) (n float64) {
	t.Helper()
	for _, r := range registries {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() != name {
				continue
			}
			for _, m := range f.Metric {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

// keyOn finds a key of a keyspace by hash whose only replica is on a server.
func keyOn(t *testing.T, c *kvtest.Cluster, client *kv.Client, name string, server int) []byte {
	t.Helper()
	partitions, err := admin.New(client).Partitions(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range partitions {
		if p.Replicas[0].Node != c.Process(server).NodeID() {
			continue
		}
		for i := range 1000 {
			if key := fmt.Appendf(nil, "key-%d", i); int(keys.HashPartition(key,
				uint32(len(partitions)))) == p.Hash {
				return key
			}
		}
	}
	t.Fatalf("no partition of %s is on server %d", name, server)
	return nil
}

// TestACommitIsRemembered: a partition is cut off with the lock of a committed transaction, for
// much longer than the GC window. When it is back the lock turns into the version that was
// promised; and then the record goes.
func TestACommitIsRemembered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		registries := make([]*prometheus.Registry, 4)
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency,
			Configure: func(server int, sc *embedded.ServerConfig) {
				registries[server] = prometheus.NewRegistry()
				sc.Registry, sc.GCInterval = registries[server], time.Second
			}})
		client := c.Client(t)
		ks := create(t, client, "here", kv.Hash(6), kv.Replicas(1), kv.GCWindow(2*time.Second))
		anchor, far := keyOn(t, c, client, "here", 1), keyOn(t, c, client, "here", 2)

		at, err := client.Update(t.Context(), func(tx *kv.Txn) error {
			if err := tx.Put(ks, anchor, []byte("a")); err != nil {
				return err
			}
			return tx.Put(ks, far, []byte("b"))
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Isolate(2, memnet.Break)
		time.Sleep(time.Minute)
		const collected, kept = "tidemark_txn_records_collected_total",
			"tidemark_txn_records_kept_total"
		if counted(t, registries, kept) == 0 || counted(t, registries, collected) != 0 {
			t.Errorf("kept %v, collected %v", counted(t, registries, kept), counted(t, registries,
				collected))
		}
		c.Rejoin(2)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if p, err := ks.Get(ctx, far); err != nil || string(p.Value) != "b" || p.Version != at {
			t.Errorf("%v, %v; want the write of %s", p, err, at)
		}
		for deadline := time.Now().Add(time.Minute); counted(t, registries,
			collected) == 0; time.Sleep(time.Second) {
			if time.Now().After(deadline) {
				t.Fatal("the record is not collected")
			}
		}
	})
}
