package kv_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
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
		answered := int64(len(sums))
		if err != nil || total < answered || total > answered+unknown.Load() {
			t.Errorf("%d increments, and %d of unknown outcome, made %q",
				answered, unknown.Load(), p.Value)
		}
		slices.Sort(sums)
		if len(slices.Compact(sums)) != int(answered) {
			t.Error("two increments have the same sum")
		}
	})
}

// TestIncrementsThatAreRefused: an increment of what is no number, and one whose sum does not fit,
// say so, alone and in a transaction, change nothing, and leave the transaction as it was.
func TestIncrementsThatAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{}).Client(t)
		ks, err := client.CreateKeyspace(ctx, "counts", kv.Hash(1))
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			value string
			by    int64
			says  string
		}{
			{"ten", 1, `the value "ten" is not a decimal number of 64 bits`},
			{"", 1, `the value "" is not a decimal number of 64 bits`},
			{" 4", 1, `the value " 4" is not a decimal number of 64 bits`},
			{"1e3", 0, `the value "1e3" is not a decimal number of 64 bits`},
			{strings.Repeat("7", 300), 1, "the value of 300 bytes is not a decimal number of 64 bits"},
			{"9223372036854775807", 1, "the sum of 9223372036854775807 and 1 does not fit into 64 bits"},
			{"-9223372036854775808", -1,
				"the sum of -9223372036854775808 and -1 does not fit into 64 bits"},
		} {
			key := []byte("n")
			if _, err := ks.Put(ctx, key, []byte(c.value)); err != nil {
				t.Fatal(err)
			}
			check := func(err error) {
				t.Helper()
				want := `tidemark: increment "n" in keyspace "counts": ` + c.says
				if !errors.Is(err, kv.ErrInvalidArgument) || !strings.HasPrefix(err.Error(), want) ||
					errors.Is(err, kv.ErrOutcomeUnknown) {
					t.Errorf("%v, want %s", err, want)
				}
			}
			_, _, err := ks.Increment(ctx, key, c.by)
			check(err)
			if _, err := client.Update(ctx, func(tx *kv.Txn) error {
				_, err := tx.Increment(ctx, ks, key, c.by)
				check(err)
				_, err = tx.Increment(ctx, ks, []byte("beside"), 1)
				return err
			}); err != nil {
				t.Errorf("%q: the transaction cannot go on: %v", c.value, err)
			}
			if p, err := ks.Get(ctx, key); err != nil || string(p.Value) != c.value {
				t.Errorf("%q became %q, %v", c.value, p.Value, err)
			}
		}
		if _, _, err := ks.Increment(ctx, nil, 1); !errors.Is(err, kv.ErrInvalidArgument) {
			t.Errorf("without a key: %v", err)
		}
		none := client.Keyspace("none")
		if _, _, err := none.Increment(ctx, []byte("n"), 1); !errors.Is(err, kv.ErrKeyspaceNotFound) {
			t.Errorf("without a keyspace: %v", err)
		}
	})
}

// TestIncrementOfALockedKey: an increment waits for the lock of a transaction. If its context ends
// before that it has not run, for certain; otherwise it adds to what the transaction has written.
func TestIncrementOfALockedKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{}).Client(t)
		ks, err := client.CreateKeyspace(ctx, "counts", kv.Hash(1))
		if err != nil {
			t.Fatal(err)
		}
		key := []byte("n")
		holder, err := client.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if sum, err := holder.Increment(ctx, ks, key, 10); err != nil || sum != 10 {
			t.Fatalf("%d, %v", sum, err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		var e *kv.Error
		_, _, err = ks.Increment(short, key, 1)
		if !errors.Is(err, kv.ErrConflict) || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, kv.ErrOutcomeUnknown) || !errors.As(err, &e) ||
			e.Transaction != holder.ID() || string(e.Key) != "n" {
			t.Errorf("under a lock: %v", err)
		}
		_, err = client.Update(short, func(tx *kv.Txn) error {
			_, err := tx.Increment(short, ks, key, 1)
			return err
		})
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kv.ErrOutcomeUnknown) {
			t.Errorf("with a context that has ended, in a transaction: %v", err)
		}
		_, _, err = ks.Increment(short, key, 1)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, kv.ErrOutcomeUnknown) {
			t.Errorf("with a context that has ended: %v", err)
		}
		var waiting sync.WaitGroup
		waiting.Go(func() {
			if sum, _, err := ks.Increment(ctx, key, 1); err != nil || sum != 11 {
				t.Errorf("after the lock: %d, %v, want 11", sum, err)
			}
		})
		synctest.Wait()
		if _, err := holder.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		waiting.Wait()
		if p, err := ks.Get(ctx, key); err != nil || string(p.Value) != "11" {
			t.Errorf("%q, %v: one that was refused has run", p.Value, err)
		}
	})
}
