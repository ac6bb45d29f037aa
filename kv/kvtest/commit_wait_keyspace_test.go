package kvtest_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestWritesToAKeyspaceWithCommitWait: no client asks for commit wait, and yet every write to such
// a keyspace is acknowledged only when every clock has passed its timestamp; also after all servers
// were started again. A write to another keyspace does not wait, unless it is in a transaction that
// writes here too.
func TestWritesToAKeyspaceWithCommitWait(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency})
		client := c.Client(t)
		strict, relaxed := create(t, client, "strict", kv.Hash(4), kv.CommitWait()),
			create(t, client, "relaxed", kv.Hash(4))
		for ks, want := range map[*kv.Keyspace]bool{strict: true, relaxed: false} {
			if info, err := admin.New(client).Keyspace(t.Context(), ks.Name()); err != nil ||
				info.CommitWait != want {
				t.Fatalf("described as %+v, %v", info, err)
			}
		}
		if keys.HashPartition([]byte("new"), 4) == keys.HashPartition([]byte("gone"), 4) {
			t.Fatal("both keys are in one partition")
		}
		ctx := t.Context()
		update := func(write func(tx *kv.Txn) error) func() (kv.Timestamp, error) {
			return func() (kv.Timestamp, error) { return client.Update(ctx, write) }
		}
		key, other, value := []byte("new"), []byte("gone"), []byte("v")
		waits := func(ks *kv.Keyspace) map[string]func() (kv.Timestamp, error) {
			return map[string]func() (kv.Timestamp, error){
				"put": func() (kv.Timestamp, error) { return ks.Put(ctx, key, value) },
				"batch": func() (kv.Timestamp,
					error) {
					return ks.Batch().Put(key, value).Commit(ctx)
				},
				"compare and swap": func() (kv.Timestamp, error) {
					if _, err := ks.Put(ctx, key, value); err != nil {
						return kv.Timestamp{}, err
					}
					swap, err := ks.CompareAndSwap(ctx, key, kv.ExpectValue(value),
						kv.Set([]byte("w")))
					return swap.Version, err
				},
				"one phase": update(func(tx *kv.Txn) error { return tx.Put(ks, key, value) }),
				"two phases": update(func(
					tx *kv.Txn) error {
					return errors.Join(tx.Put(ks, key, value),
						tx.Put(ks, other, value))
				}),
				// These do not say at what timestamp. It is later than when they began: the clocks
				// agree here, and no server knows that.
				"delete": func() (kv.Timestamp, error) {
					if _, err := ks.Put(ctx, other, value); err != nil {
						return kv.Timestamp{}, err
					}
					begun := time.Now().UnixNano()
					_, err := ks.Delete(ctx, other)
					return kv.Timestamp{Wall: begun}, err
				},
				"delete range": func() (kv.Timestamp, error) {
					if _, err := ks.Put(ctx, key, value); err != nil {
						return kv.Timestamp{}, err
					}
					begun := time.Now().UnixNano()
					_, err := ks.DeleteRange(ctx, kv.All())
					return kv.Timestamp{Wall: begun}, err
				},
			}
		}
		check := func(ways map[string]func() (kv.Timestamp, error), want bool) {
			t.Helper()
			for name, way := range ways {
				at, err := way()
				if err != nil {
					t.Fatal(name, err)
				}
				if early := int64(hlc.DefaultMaxOffset) +
					at.Wall - time.Now().UnixNano(); early < 0 != want {
					t.Errorf("%s is acknowledged %s before every clock has passed %s; commit "+
						"wait: %v", name, time.Duration(early), at, want)
				}
			}
		}
		check(waits(strict), true)
		check(waits(relaxed), false)
		check(map[string]func() (kv.Timestamp, error){
			"both": update(func(tx *kv.Txn) error {
				return errors.Join(tx.Put(relaxed, key, value), tx.Put(strict, key, value))
			}),
		}, true)
		for i := range c.Servers() {
			c.Kill(i, 0)
		}
		for i := range c.Servers() {
			if err := c.Restart(i); err != nil {
				t.Fatal(err)
			}
		}
		ready(t, c)
		check(waits(strict), true)
		check(waits(relaxed), false)
	})
}
