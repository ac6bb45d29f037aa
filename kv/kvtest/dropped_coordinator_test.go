package kvtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// TestACommitOutlivesItsCoordinator: the keyspace that holds the outcome of a committed transaction
// is dropped while a partition of another one has its lock, and cannot be told at first.
func TestACommitOutlivesItsCoordinator(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency})
		client := c.Client(t)
		dropped := create(t, client, "dropped", kv.Hash(1))
		ks := create(t, client, "here", kv.Hash(6), kv.Replicas(1))
		far := keyOn(t, c, client, "here", 2)
		partitions, err := admin.New(client).Partitions(t.Context(), "dropped")
		if err != nil {
			t.Fatal(err)
		}
		at, err := client.Update(t.Context(), func(tx *kv.Txn) error {
			return errors.Join(tx.Put(dropped, []byte("anchor"), []byte("a")),
				tx.Put(ks, far, []byte("b")))
		})
		if err != nil {
			t.Fatal(err)
		}
		c.Isolate(2, memnet.Break)
		if err := client.DropKeyspace(t.Context(), "dropped"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(15 * time.Second)
		c.Rejoin(2)
		if p, err := ks.Get(t.Context(), far); err != nil || string(p.Value) != "b" ||
			p.Version != at {
			t.Errorf("%v, %v; want the write of %s", p, err, at)
		}
		for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(time.Second) {
			left := 0
			for server := 1; server <= 3; server++ {
				for _, r := range c.Process(server).Replicas() {
					if r.Partition == partitions[0].ID {
						left++
					}
				}
			}
			if left == 0 {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d replicas of the dropped keyspace are left", left)
			}
		}
	})
}

// TestLocksWithoutACoordinatorGo: the locks of a transaction that can no longer be decided are not
// in the way for ever.
func TestLocksWithoutACoordinatorGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency})
		client := c.Client(t)
		dropped := create(t, client, "dropped", kv.Hash(1))
		ks := create(t, client, "here", kv.Hash(4))
		life, die := context.WithCancel(t.Context())
		tx, err := client.Begin(life)
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range []*kv.Keyspace{dropped, ks} {
			if _, err := tx.GetForUpdate(t.Context(), x, []byte("k")); !errors.Is(err,
				kv.ErrNotFound) {
				t.Fatal(err)
			}
		}
		die()
		if err := client.DropKeyspace(t.Context(), "dropped"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		if _, err := ks.Put(ctx, []byte("k"), []byte("v")); err != nil {
			t.Error(err)
		}
		if tx, err = client.Begin(ctx); err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		if _, err := tx.GetForUpdate(ctx, ks, []byte("k")); err != nil {
			t.Error(err)
		}
	})
}
