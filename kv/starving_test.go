package kv_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// putters put ever new keys, and old ones again, until stop is called: one put after the other,
// from clients of their own.
func putters(t *testing.T, cluster *kvtest.Cluster, keyspace string,
	n int) (puts *atomic.Uint64, stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	puts = new(atomic.Uint64)
	for i := range n {
		ks := cluster.Client(t).Keyspace(keyspace)
		all.Go(func() {
			for j := 0; ctx.Err() == nil; j++ {
				if _, err := ks.Put(ctx, fmt.Appendf(nil, "%c-%d-%d", 'a'+(i*7+j)%26, i, j%200),
					[]byte("v")); err != nil && ctx.Err() == nil {
					t.Errorf("a put: %v", err)
				}
				puts.Add(1)
			}
		})
	}
	return puts, func() { cancel(); all.Wait() }
}

// shapes are keyspaces of several partitions, and of one.
var shapes = map[string]kv.KeyspaceOption{
	"one partition": kv.Range(), "range": kv.Range([]byte("g"), []byte("p")), "hash": kv.Hash(4),
}

// mostAttempts is how many attempts a transaction needs at most that reads spans others write all
// the time.
const mostAttempts = 6

// TestSpanReadersDoNotStarve: a transaction that deletes a keyspace, or counts it and writes,
// succeeds within a few attempts although six clients put keys there as fast as they can.
func TestSpanReadersDoNotStarve(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
				client := cluster.Client(t)
				ks, err := client.CreateKeyspace(ctx, "k", shape)
				if err != nil {
					t.Fatal(err)
				}
				puts, stop := putters(t, cluster, "k", 6)
				defer stop()
				for round := range 5 {
					attempts, deleted, before := 0, uint64(0), puts.Load()
					if _, err := client.Update(ctx, func(tx *kv.Txn) (err error) {
						attempts++
						deleted, err = tx.DeleteRange(ctx, ks, kv.All())
						return err
					}); err != nil {
						t.Fatalf("round %d: deleting all: %v", round, err)
					}
					t.Logf("deleted %d keys in %d attempts, meanwhile %d puts", deleted, attempts,
						puts.Load()-before)
					if attempts > mostAttempts {
						t.Errorf("round %d: deleting all took %d attempts", round, attempts)
					}
					attempts, before = 0, puts.Load()
					if _, err := client.Update(ctx, func(tx *kv.Txn) error {
						attempts++
						n, err := tx.Count(ctx, ks)
						if err != nil {
							return err
						}
						return tx.Put(ks, []byte("count"), strconv.AppendUint(nil, n, 10))
					}); err != nil {
						t.Fatalf("round %d: counting: %v", round, err)
					}
					t.Logf("counted in %d attempts, meanwhile %d puts", attempts, puts.Load()-before)
					if attempts > mostAttempts {
						t.Errorf("round %d: counting took %d attempts", round, attempts)
					}
				}
			})
		})
	}
}

// TestCountersOfOneSpanTakeTurns: of many clients that all count the same span and add to it each
// makes progress, and no count is lost.
func TestCountersOfOneSpanTakeTurns(t *testing.T) {
	for name, shape := range shapes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
				defer cancel()
				cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
				if _, err := cluster.Client(t).CreateKeyspace(ctx, "k", shape); err != nil {
					t.Fatal(err)
				}
				const workers, each = 6, 8
				var all sync.WaitGroup
				var most atomic.Int64
				for i := range workers {
					client := cluster.Client(t)
					ks := client.Keyspace("k")
					all.Go(func() {
						for range each {
							attempts := int64(0)
							if _, err := client.Update(ctx, func(tx *kv.Txn) error {
								attempts++
								n, err := tx.Count(ctx, ks)
								if err != nil {
									return err
								}
								return tx.Put(ks, fmt.Appendf(nil, "%c%04d", 'a'+n%26, n),
									strconv.AppendInt(nil, int64(i), 10))
							}); err != nil {
								t.Error(err)
							}
							m := most.Load()
							for attempts > m && !most.CompareAndSwap(m, attempts) {
								m = most.Load()
							}
						}
					})
				}
				all.Wait()
				t.Logf("%d attempts at most", most.Load())
				if n, err := cluster.Client(t).Keyspace("k").Count(ctx); err != nil || n != workers*each {
					t.Errorf("%d keys, %v", n, err)
				}
				if most.Load() > 2*mostAttempts {
					t.Errorf("an increment took %d attempts", most.Load())
				}
			})
		})
	}
}
