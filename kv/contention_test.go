package kv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// TestLocksAhead: what an attempt has read and written before it failed, the next one locks before
// its function runs, in the order of the keys, and does not ask for again.
func TestLocksAhead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("hash", 8)
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		var locked []string
		gets := 0
		c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
			if r.GetPrepare().GetVolatile() {
				locked = append(locked, string(r.GetPrepare().Mutations[0].Key))
			}
			if r.GetGet() != nil {
				gets++
			}
			return fakeserver.Fault{}
		})
		attempts := 0
		disturb := func(ctx context.Context) error {
			_, err := other.Update(ctx, increment(ctx, other.Keyspace("hash"), "b"))
			return err
		}
		ks := client.Keyspace("hash")
		_, err := client.Update(ctx, func(tx *Txn) error {
			if attempts++; attempts == 2 && !slices.Equal(locked, []string{"a", "b"}) {
				t.Errorf("locked %q before the second attempt", locked)
			}
			before := gets
			if _, err := tx.Get(ctx, ks, []byte("only read")); !errors.Is(err, ErrNotFound) {
				return fmt.Errorf("read of nothing: %v", err)
			}
			if err := errors.Join(increment(ctx, ks, "b")(tx), increment(ctx, ks, "a")(tx)); err != nil {
				return err
			}
			if attempts == 1 {
				return disturb(ctx)
			}
			if gets != before+1 {
				t.Errorf("the second attempt asks %d times", gets-before)
			}
			return nil
		})
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
		for key, want := range map[string]string{"a": "1", "b": "2"} {
			if p, err := ks.Get(ctx, []byte(key)); err != nil || string(p.Value) != want {
				t.Errorf("%s: %s, %v", key, p.Value, err)
			}
		}
	})
}

// volatileLocks has the requests for volatile locks of keys noted, each with the keys that it
// locks.
func volatileLocks(c *fakeCluster) *[][]string {
	var locked [][]string
	c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
		if p := r.GetPrepare(); p.GetVolatile() && len(p.HoldSpans) == 0 {
			var names []string
			for _, m := range p.Mutations {
				names = append(names, string(m.Key))
			}
			locked = append(locked, names)
		}
		return fakeserver.Fault{}
	})
	return &locked
}

// numbered are keys, in order.
func numbered(n int) (all [][]byte) {
	for i := range n {
		all = append(all, fmt.Appendf(nil, "k%04d", i))
	}
	return all
}

// TestManyContendedKeys: of more keys than are locked ahead the first are, in order, and a BatchGet
// locks the others as it reads them, one by one: several at once would wait until all are free at
// one moment. It locks nothing that no earlier attempt has failed over.
func TestManyContendedKeys(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("range", 0, "k0018")
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		ks := client.Keyspace("range")
		locked := volatileLocks(c)
		all, attempts := numbered(20), 0
		_, err := client.Update(ctx, func(tx *Txn) error {
			attempts++
			pairs, err := tx.BatchGet(ctx, ks, append(slices.Clone(all), []byte("only read"), all[19]))
			if err != nil {
				return err
			}
			if len(pairs) != 22 || string(pairs[19].Key) != "k0019" ||
				string(pairs[21].Key) != "k0019" || string(pairs[20].Key) != "only read" {
				return fmt.Errorf("read %v", pairs)
			}
			for _, p := range pairs[:20] {
				if attempts == 2 && string(p.Key) == "k0017" != p.Exists() {
					t.Errorf("%s exists: %t", p.Key, p.Exists())
				}
				if err := tx.Put(ks, p.Key, append(p.Value, 'x')); err != nil {
					return err
				}
			}
			if attempts == 1 {
				_, err = other.Keyspace("range").Put(ctx, all[17], []byte("o"))
			}
			return err
		})
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
		var want [][]string
		for _, key := range all {
			want = append(want, []string{string(key)})
		}
		if !slices.EqualFunc(*locked, want, slices.Equal) {
			t.Errorf("locked %q, want %q", *locked, want)
		}
		if p, err := ks.Get(ctx, all[17]); err != nil || string(p.Value) != "ox" {
			t.Errorf("%s, %v", p.Value, err)
		}
	})
}

// TestContentionIsOfTheLatestAttempts: a transaction that takes the first element of a queue, and
// fails because another one took it, does not go on to lock what is not there any more.
func TestContentionIsOfTheLatestAttempts(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		c.AddKeyspace("queue", 0)
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		const rounds = 30
		all := numbered(rounds + 1)
		ks := client.Keyspace("queue")
		for _, key := range all {
			must[Timestamp](t)(ks.Put(ctx, key, []byte("element")))
		}
		locked, attempts := volatileLocks(c), 0
		_, err := client.Update(ctx, func(tx *Txn) error {
			attempts++
			if n := len(*locked); n > 2 {
				t.Errorf("attempt %d locks %q", attempts, *locked)
			}
			*locked = nil
			// The end of the queue is contended in every attempt.
			if _, err := tx.Get(ctx, ks, []byte("z")); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			if err := tx.Put(ks, []byte("z"), nil); err != nil {
				return err
			}
			for p, err := range tx.Scan(ctx, ks, Limit(1)) {
				if err != nil {
					return err
				}
				if err := tx.Delete(ks, p.Key); err != nil {
					return err
				}
				if attempts <= rounds {
					if _, err := other.Keyspace("queue").Delete(ctx, p.Key); err != nil {
						return err
					}
				}
			}
			return nil
		})
		if err != nil || attempts != rounds+1 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
		if n, err := ks.Count(ctx); err != nil || n != 1 {
			t.Errorf("%d are left, %v", n, err)
		}
	})
}

// TestADroppedKeyspaceIsNotLockedAhead: that a keyspace was dropped in which an earlier attempt
// wrote says the function, if it still wants it.
func TestADroppedKeyspaceIsNotLockedAhead(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		ctx := t.Context()
		dropped := c.AddKeyspace("dropped", 0)
		c.AddKeyspace("stays", 0)
		client, other := c.open(), c.open()
		defer client.Close()
		defer other.Close()
		attempts := 0
		_, err := client.Update(ctx, func(tx *Txn) error {
			if attempts++; attempts == 1 {
				if err := errors.Join(increment(ctx, client.Keyspace("dropped"), "k")(tx),
					increment(ctx, client.Keyspace("stays"), "k")(tx)); err != nil {
					return err
				}
				_, err := other.Keyspace("stays").Put(ctx, []byte("k"), []byte("1"))
				c.Play(func(_ *fakeserver.Node, r *kvpb.Request) fakeserver.Fault {
					// The table does not show it before the lock has failed.
					if c.Keyspaces[dropped] != nil && r.GetPrepare().GetVolatile() {
						delete(c.Keyspaces, dropped)
						maps.DeleteFunc(c.Partitions, func(_ uint64, p *fakeserver.Partition) bool {
							return p.Desc.Keyspace == dropped
						})
						c.TellLocked()
					}
					return fakeserver.Fault{}
				})
				return err
			}
			return increment(ctx, client.Keyspace("stays"), "k")(tx)
		})
		if err != nil || attempts != 2 {
			t.Errorf("%d attempts: %v", attempts, err)
		}
		if p, err := client.Keyspace("stays").Get(ctx, []byte("k")); err != nil ||
			string(p.Value) != "2" {
			t.Errorf("%s, %v", p.Value, err)
		}
	})
}
