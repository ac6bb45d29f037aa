package kv_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// A transaction takes its first write back and writes elsewhere: in another partition, or another
// keyspace, with and without a lock.
func TestTheFirstWriteTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		one, err := client.CreateKeyspace(ctx, "one", kv.Range([]byte("m")))
		if err != nil {
			t.Fatal(err)
		}
		other, err := client.CreateKeyspace(ctx, "other", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		for name, ks := range map[string]*kv.Keyspace{"another partition": one,
			"another keyspace": other} {
			for _, locked := range []bool{false, true} {
				attempts := 0
				_, err := client.Update(ctx, func(tx *kv.Txn) error {
					attempts++
					before := tx.Savepoint()
					if err := errors.Join(tx.Put(one, []byte("a"), []byte("never")),
						tx.RollbackTo(before)); err != nil {
						return err
					}
					if locked {
						if _, err := tx.GetForUpdate(ctx, ks, []byte("z")); err != nil &&
							!errors.Is(err, kv.ErrNotFound) {
							return err
						}
					}
					return tx.Put(ks, []byte("z"), []byte(name))
				})
				if err != nil || attempts != 1 {
					t.Errorf("%s, locked %t: %d attempts: %v", name, locked, attempts, err)
				}
				if p, err := ks.Get(ctx, []byte("z")); err != nil || string(p.Value) != name {
					t.Errorf("%s, locked %t: found %q: %v", name, locked, p.Value, err)
				}
			}
		}
		if p, err := one.Get(ctx, []byte("a")); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("what was taken back is there: %q, %v", p.Value, err)
		}
	})
}

// A session has a replicated lock, which an older one takes away; that one changes the key, and
// another one. What the session has read under the lock and what the other key is now do not go
// together, whether it writes anything or not.
func TestWhatALostLockGuardedIsNotMixed(t *testing.T) {
	for _, lock := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
			if _, err := cluster.Client(t).CreateKeyspace(ctx, "k", kv.Range([]byte("m"))); err != nil {
				t.Fatal(err)
			}
			clients, all := sessions(t, cluster, 2)
			older, younger := clients[0].Keyspace("k"), clients[1].Keyspace("k")
			for _, key := range []string{"a", "z"} {
				if _, err := older.Put(ctx, []byte(key), []byte("old")); err != nil {
					t.Fatal(err)
				}
			}
			a, err := all[1].GetForUpdate(ctx, younger, []byte("a"))
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(lockFor(ctx, all[0], older, "a"),
				all[0].Put(older, []byte("a"), []byte("new")),
				all[0].Put(older, []byte("z"), []byte("new"))); err != nil {
				t.Fatal(err)
			}
			if _, err := all[0].Commit(ctx); err != nil {
				t.Fatal(err)
			}
			read := all[1].Get
			if lock {
				read = all[1].GetForUpdate
			}
			z, err := read(ctx, younger, []byte("z"))
			if err == nil {
				_, err = all[1].Commit(ctx)
			}
			switch {
			case err == nil && string(z.Value) != string(a.Value):
				t.Errorf("locked %t: it has seen a=%s and z=%s", lock, a.Value, z.Value)
			case err != nil && !errors.Is(err, kv.ErrConflict) &&
				!errors.Is(err, kv.ErrTransactionAborted):
				t.Errorf("locked %t: %v", lock, err)
			}
		})
	}
}
