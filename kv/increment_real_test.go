package kv_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// TestIncrementsAddUp: increments of one key, alone and in transactions, each take effect once
// although leaders change all the time and requests are sent again: no two have the same sum, and
// the last sum is that of all.
func TestIncrementsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "counts", kv.Hash(1))
		if err != nil {
			t.Fatal(err)
		}
		key := []byte("n")
		var mu sync.Mutex
		var sums []int64
		took := func(sum int64) {
			mu.Lock()
			defer mu.Unlock()
			sums = append(sums, sum)
		}
		const clients, each = 6, 60
		var unknown atomic.Int64
		var all sync.WaitGroup
		for i := range clients {
			all.Go(func() {
				for range each {
					var sum int64
					var err error
					if i%3 == 0 {
						_, err = client.Update(ctx, func(tx *kv.Txn) (err error) {
							sum, err = tx.Increment(ctx, ks, key, 1)
							return err
						})
					} else {
						sum, _, err = ks.Increment(ctx, key, 1)
					}
					switch {
					case errors.Is(err, kv.ErrOutcomeUnknown):
						unknown.Add(1)
						continue
					case err != nil:
						t.Error(err)
						return
					}
					took(sum)
				}
			})
		}
		stop := make(chan struct{})
		var changes sync.WaitGroup
		changes.Go(func() {
			for i := 0; ; i++ {
				cluster.Isolate(i%3, memnet.Break)
				time.Sleep(300 * time.Millisecond) // of virtual time: the pace of the faults
				cluster.Rejoin(i % 3)
				select {
				case <-stop:
					return
				case <-time.After(3 * time.Second):
				}
			}
		})
		all.Wait()
		close(stop)
		changes.Wait()
		p, err := ks.Get(ctx, key)
		if err != nil {
			t.Fatal(err)
		}
		total, err := strconv.ParseInt(string(p.Value), 10, 64)
		told := int64(len(sums))
		if err != nil || total < told || total > told+unknown.Load() {
			t.Errorf("%d increments, and %d of which nobody knows, made %q", told, unknown.Load(), p.Value)
		}
		slices.Sort(sums)
		if len(slices.Compact(sums)) != int(told) {
			t.Error("two increments have the same sum")
		}
		if _, err := ks.Put(ctx, []byte("word"), []byte("ten")); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ks.Increment(ctx, []byte("word"), 1); !errors.Is(err, kv.ErrInvalidArgument) {
			t.Errorf("what is no number: %v", err)
		}
		_, err = client.Update(ctx, func(tx *kv.Txn) error {
			_, err := tx.Increment(ctx, ks, []byte("word"), 1)
			return err
		})
		if !errors.Is(err, kv.ErrInvalidArgument) {
			t.Errorf("what is no number, in a transaction: %v", err)
		}
	})
}
