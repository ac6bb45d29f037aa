package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// On servers whose disks are full, values can be deleted; and values that were deleted, or that
// have expired, give their room back once their keyspace's window is over: writes go on without
// anything else being done.
func TestDeletionsOnFullDisks(t *testing.T) {
	const capacity, reserve, valueBytes = 24 << 20, 4 << 20, 64 << 10
	key := func(i int) []byte { return fmt.Appendf(nil, "k%05d", i) }
	for name, remove := range map[string]func(*testing.T, *kv.Client, *kv.Keyspace, int){
		"deletes": func(t *testing.T, _ *kv.Client, ks *kv.Keyspace, keys int) {
			for i := range keys {
				if _, err := ks.Delete(t.Context(), key(i)); err != nil {
					t.Fatalf("a deletion on full disks: %v", err)
				}
			}
		},
		"batches of deletes": func(t *testing.T, _ *kv.Client, ks *kv.Keyspace, keys int) {
			for i := range keys {
				if _, err := ks.Batch().Delete(key(i)).Commit(t.Context()); err != nil {
					t.Fatalf("a batch of deletions on full disks: %v", err)
				}
			}
		},
		"delete range": func(t *testing.T, _ *kv.Client, ks *kv.Keyspace, _ int) {
			if _, err := ks.DeleteRange(t.Context(), kv.All()); err != nil {
				t.Fatalf("a deletion of a range on full disks: %v", err)
			}
		},
		"transactions": func(t *testing.T, client *kv.Client, ks *kv.Keyspace, keys int) {
			for i := range keys {
				if _, err := client.Update(t.Context(), func(tx *kv.Txn) error {
					return errors.Join(tx.Delete(ks, key(i)), tx.Delete(ks, key(keys+i)))
				}); err != nil {
					t.Fatalf("a transaction that deletes, on full disks: %v", err)
				}
			}
		},
		"expiry": func(*testing.T, *kv.Client, *kv.Keyspace, int) {},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency,
					Configure: func(_ int, s *embedded.ServerConfig) {
						s.MinFreeBytes, s.RetainLogBytes, s.GCInterval = reserve, 1<<20, time.Second
					}})
				client := c.Client(t)
				ks := create(t, client, "large", kv.Hash(3), kv.GCWindow(time.Second))
				for server := range c.Servers() {
					c.Disk(server).SetCapacity(capacity)
				}
				random := rand.NewChaCha8([32]byte{1})
				value := make([]byte, valueBytes)
				var options []kv.WriteOption
				if name == "expiry" {
					options = append(options, kv.TTL(2*time.Minute))
				}
				full, keys := 0, 0
				for ; full < 20 && keys < 5000; keys++ {
					_, _ = random.Read(value)
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					_, err := ks.Put(ctx, key(keys), value, options...)
					cancel()
					if errors.Is(err, kv.ErrDiskFull) {
						full++
						time.Sleep(500 * time.Millisecond)
					}
				}
				if full == 0 {
					t.Fatal("the disks do not run full")
				}
				time.Sleep(10 * time.Second)
				remove(t, client, ks, keys)
				for i := range 100 {
					putWithin(t, ks, string(key(i)), string(value), 3*time.Minute)
				}
				for server := range c.Servers() {
					t.Logf("server %d has %d KiB left", server,
						(capacity-c.Disk(server).Used())>>10)
				}
			})
		})
	}
}
