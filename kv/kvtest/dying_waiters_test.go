package kvtest_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// TestClientDiesWithMany kills a client of which many transactions wait for a lock that one of them
// has, for others, or commit: no other client has to wait for one of them after the other.
func TestClientDiesWithMany(t *testing.T) {
	const many = 6
	fruit, pear := []byte("fruit"), []byte("pear")
	for what, wait := range map[string]func(ctx context.Context, ks *kv.Keyspace,
		c *kv.Client) error{
		"a lock": func(ctx context.Context, ks *kv.Keyspace, c *kv.Client) error {
			_, err := c.Update(ctx, func(tx *kv.Txn) error {
				_, err := tx.GetForUpdate(ctx, ks, fruit)
				return err
			})
			return err
		},
		"a lock, with another one held": func(ctx context.Context, ks *kv.Keyspace,
			c *kv.Client) error {
			_, err := c.Update(ctx, func(tx *kv.Txn) error {
				// Each has its own.
				if _, err := tx.GetForUpdate(ctx, ks, []byte(tx.ID())); err != nil &&
					!errors.Is(err, kv.ErrNotFound) {
					return err
				}
				_, err := tx.GetForUpdate(ctx, ks, fruit)
				return err
			})
			return err
		},
		"a commit of two phases": func(ctx context.Context, ks *kv.Keyspace, c *kv.Client) error {
			_, err := c.Update(ctx, func(
				tx *kv.Txn) error {
				return errors.Join(tx.Put(ks, fruit, fruit),
					tx.Put(ks, pear, pear))
			})
			return err
		},
		"a write": func(ctx context.Context, ks *kv.Keyspace, _ *kv.Client) error {
			_, err := ks.Put(ctx, fruit, fruit)
			return err
		},
	} {
		for mode, how := range map[string]memnet.Mode{"killed": memnet.Break,
			"cut off": memnet.Stall} {
			for stay, lives := range map[string]time.Duration{"at once": 100 * time.Millisecond,
				"after a while": 2500 * time.Millisecond} {
				t.Run(what+", "+mode+" "+stay, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						m := newMortal(t)
						life, kill := context.WithCancel(t.Context())
						defer kill()
						client, err := kv.Open(life, m.Endpoints(), kv.Dialer(m.Dialer("dying")))
						if err != nil {
							t.Fatal(err)
						}
						if err := m.hashPut(t, fruit, pear); err != nil {
							t.Fatal(err)
						}
						ks := client.Keyspace("hash")
						holder, err := client.Begin(life)
						if err != nil {
							t.Fatal(err)
						}
						if _, err := holder.GetForUpdate(life, ks, fruit); err != nil {
							t.Fatal(err)
						}
						var waiters sync.WaitGroup
						for range many {
							waiters.Go(func() {
								if err := wait(life, ks, client); err == nil {
									t.Error("a client got what another one had")
								}
							})
						}
						time.Sleep(lives)
						m.Network().Isolate("dying", how)
						died := time.Now()
						kill()
						if _, err := m.witness.Keyspace("hash").Put(t.Context(), fruit,
							[]byte("others'")); err != nil {
							t.Fatal(err)
						}
						if d := time.Since(died); d > cleanedUp {
							t.Errorf("another client could write %v after the client had died", d)
						}
						for m.locks(t) > 0 {
							time.Sleep(100 * time.Millisecond)
						}
						if d := time.Since(died); d > cleanedUp {
							t.Errorf("the last lock was gone %v after the client had died", d)
						}
						waiters.Wait()
						_ = client.Close()
					})
				})
			}
		}
	}
}

// hashPut puts keys.
func (m *mortal) hashPut(t *testing.T, keys ...[]byte) error {
	var errs []error
	for _, key := range keys {
		_, err := m.hash.Put(t.Context(), key, key)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
