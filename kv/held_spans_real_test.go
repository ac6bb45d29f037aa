package kv_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// counted is a cluster of which a metric can be read.
type counted struct {
	*kvtest.Cluster
	registries map[int]*prometheus.Registry
}

func startCounted(t *testing.T, o kvtest.Options) *counted {
	t.Helper()
	c := &counted{registries: make(map[int]*prometheus.Registry)}
	o.Latency = time.Millisecond
	o.Configure = func(server int, cfg *embedded.ServerConfig) {
		c.registries[server] = prometheus.NewRegistry()
		cfg.Registry = c.registries[server]
	}
	c.Cluster = kvtest.Start(t, o)
	return c
}

// sum is a metric's value, on all servers together.
func (c *counted) sum(t *testing.T, name string) (n float64) {
	t.Helper()
	for _, r := range c.registries {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == name {
				for _, m := range f.GetMetric() {
					n += m.GetGauge().GetValue() + m.GetCounter().GetValue()
				}
			}
		}
	}
	return n
}

// TestHeldSpansEnd: whatever becomes of the attempts that hold spans (a commit in one phase or two,
// in the partition of the spans or elsewhere, no writes, an error, the end of the client), nothing
// stays held, and all that waited go on.
func TestHeldSpansEnd(t *testing.T) {
	enough := errors.New("enough")
	ends := map[string]struct {
		end  func(tx *kv.Txn, ks, other *kv.Keyspace) error
		want error
	}{
		"writes there": {func(tx *kv.Txn, ks, _ *kv.Keyspace) error {
			return tx.Put(ks, []byte("m"), nil)
		}, nil},
		"writes elsewhere": {func(tx *kv.Txn, _, other *kv.Keyspace) error {
			return tx.Put(other, []byte("m"), nil)
		}, nil},
		"writes everywhere": {func(tx *kv.Txn, ks, other *kv.Keyspace) error {
			return errors.Join(tx.Put(ks, []byte("a"), nil), tx.Put(ks, []byte("z"), nil),
				tx.Put(other, []byte("m"), nil))
		}, nil},
		"writes nothing": {func(*kv.Txn, *kv.Keyspace, *kv.Keyspace) error { return nil }, nil},
		"fails":          {func(*kv.Txn, *kv.Keyspace, *kv.Keyspace) error { return enough }, enough},
	}
	for name, e := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cluster := startCounted(t, kvtest.Options{})
				client, disturber := cluster.Client(t), cluster.Client(t)
				ks, err := client.CreateKeyspace(ctx, "k", kv.Range([]byte("g"), []byte("p")))
				if err != nil {
					t.Fatal(err)
				}
				other, err := client.CreateKeyspace(ctx, "other", kv.Hash(4))
				if err != nil {
					t.Fatal(err)
				}
				attempts := 0
				put := func(key string) error {
					_, err := disturber.Keyspace("k").Put(ctx, []byte(key), []byte(strconv.Itoa(attempts)))
					return err
				}
				waited := make(chan error, 1)
				_, err = client.Update(ctx, func(tx *kv.Txn) error {
					attempts++
					if _, err := tx.Count(ctx, ks); err != nil {
						return err
					}
					if attempts <= 2 {
						// It has to write to be in the way of anything.
						return errors.Join(put(fmt.Sprintf("b%d", attempts)),
							tx.Put(ks, []byte("x"), nil), tx.Put(ks, []byte("c"), nil))
					}
					if held := cluster.sum(t, "tidemark_txn_span_locks"); held != 3 {
						t.Errorf("attempt %d holds %v spans", attempts, held)
					}
					go func() { waited <- put("late") }()
					synctest.Wait()
					time.Sleep(50 * time.Millisecond)
					select {
					case err := <-waited:
						t.Errorf("a put in a held span has ended: %v", err)
						waited <- err
					default:
					}
					return e.end(tx, ks, other)
				})
				if !errors.Is(err, e.want) || attempts != 3 {
					t.Errorf("%d attempts: %v", attempts, err)
				}
				if err := <-waited; err != nil {
					t.Error(err)
				}
				time.Sleep(time.Second)
				if held := cluster.sum(t, "tidemark_txn_span_locks"); held != 0 {
					t.Errorf("%v spans are held at the end", held)
				}
				if n := cluster.sum(t, "tidemark_txn_span_lock_waits_total"); n < 1 {
					t.Errorf("%v waits were counted", n)
				}
			})
		})
	}
}

// TestHeldSpansOfADeadClient: a client that dies with held spans delays the others by no more than
// 5 s.
func TestHeldSpansOfADeadClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := startCounted(t, kvtest.Options{})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Range([]byte("g"), []byte("p")))
		if err != nil {
			t.Fatal(err)
		}
		life, die := context.WithCancel(ctx)
		dead, err := client.Begin(life)
		if err != nil {
			t.Fatal(err)
		}
		for attempt := 1; ; attempt++ {
			if _, err := dead.Count(ctx, ks); err != nil {
				t.Fatal(err)
			}
			if attempt == 3 {
				// Again holds what the attempts before have failed over, before its first read.
				break
			}
			if _, err := ks.Put(ctx, fmt.Appendf(nil, "b%d", attempt), nil); err != nil {
				t.Fatal(err)
			}
			if err := dead.Put(ks, []byte("x"), nil); err != nil {
				t.Fatal(err)
			}
			if _, err := dead.Commit(ctx); !errors.Is(err, kv.ErrConflict) {
				t.Fatal(err)
			}
			if dead, err = dead.Again(life); err != nil {
				t.Fatal(err)
			}
		}
		if held := cluster.sum(t, "tidemark_txn_span_locks"); held != 3 {
			t.Errorf("it holds %v spans", held)
		}
		die()
		begun := time.Now()
		for _, key := range []string{"a", "h", "z"} {
			if _, err := ks.Put(ctx, []byte(key), nil); err != nil || time.Since(begun) > 5*time.Second {
				t.Errorf("%s: %v after %v", key, err, time.Since(begun))
			}
		}
		dead.Rollback()
	})
}

// TestReadKeysDoNotStarve: a transaction that reads a key, and writes another, ends although the
// first is written all the time.
func TestReadKeysDoNotStarve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cluster := startCounted(t, kvtest.Options{})
		client, others := cluster.Client(t), cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		stop, stopped := context.WithCancel(ctx)
		done := make(chan struct{}, 4)
		for range cap(done) {
			go func() {
				for i := 0; stop.Err() == nil; i++ {
					_, _ = others.Keyspace("k").Put(stop, []byte("hot"), strconv.AppendInt(nil, int64(i), 10))
				}
				done <- struct{}{}
			}()
		}
		for round := range 5 {
			attempts := 0
			if _, err := client.Update(ctx, func(tx *kv.Txn) error {
				attempts++
				p, err := tx.Get(ctx, ks, []byte("hot"))
				if err != nil && !errors.Is(err, kv.ErrNotFound) {
					return err
				}
				return tx.Put(ks, []byte("copy"), p.Value)
			}); err != nil || attempts > mostAttempts {
				t.Errorf("round %d: %d attempts, %v", round, attempts, err)
			}
		}
		stopped()
		for range cap(done) {
			<-done
		}
	})
}
