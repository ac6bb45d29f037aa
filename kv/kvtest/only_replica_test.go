package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestTheOnlyReplicaMoves: a keyspace with one replica goes from node to node under writes, and
// once it is taken back.
func TestTheOnlyReplicaMoves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 1, Latency: latency})
		client := c.Client(t)
		ks := create(t, client, "things", kv.Hash(1), kv.Replicas(1))
		written := 0
		write := func() {
			t.Helper()
			put(t, ks, fmt.Sprint("k", written), fmt.Sprint("v", written))
			written++
		}
		at := func() (partition, node uint64, replicas int) {
			all, err := admin.New(client).Partitions(t.Context(), "things")
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			return all[0].ID, all[0].Replicas[0].Node, len(all[0].Replicas)
		}
		for round := range 4 {
			id, from, _ := at()
			to := from%3 + 1
			if err := admin.New(client).MoveReplica(t.Context(), id, from, to); err != nil {
				t.Fatal(err)
			}
			for i := 0; ; i++ {
				if i == 2000 {
					t.Fatalf("round %d does not end", round)
				}
				write()
				if round == 2 && i == 20 {
					if err := admin.New(client).CancelOperator(t.Context(), id); err != nil {
						t.Fatal(err)
					}
				}
				under, err := admin.New(client).Operators(t.Context())
				if _, now, n := at(); err == nil && len(under) == 0 && n == 1 {
					if round != 2 && now != to {
						t.Errorf("round %d: from node %d to %d, it is on %d", round, from, to, now)
					}
					break
				}
				time.Sleep(20 * time.Millisecond) // virtual
			}
		}
		for i := range written {
			if got, err := ks.Get(t.Context(), fmt.Append(nil, "k", i)); err != nil ||
				string(got.Value) != fmt.Sprint("v", i) {
				t.Fatalf("k%d: %q, %v", i, got.Value, err)
			}
		}
	})
}
