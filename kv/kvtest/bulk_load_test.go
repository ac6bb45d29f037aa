package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// recordsOf are n records, in the order of a permutation.
func recordsOf(n int, order []int) func() iter.Seq2[kv.Pair, error] {
	return func() iter.Seq2[kv.Pair, error] {
		return func(yield func(kv.Pair, error) bool) {
			for i := range n {
				if order != nil {
					i = order[i]
				}
				if !yield(kv.Pair{Key: loadKey(i), Value: loadValue(i)}, nil) {
					return
				}
			}
		}
	}
}

func loadKey(i int) []byte { return fmt.Appendf(nil, "user/%08d", i) }
func loadValue(i int) []byte {
	return fmt.Appendf(nil, "value %d of a record that is as long as records are", i)
}

// compareLoad compares the whole keyspace with n records, and the nodes' statistics with what they
// hold.
func compareLoad(ctx context.Context, t *testing.T, c *kvtest.Cluster, client *kv.Client,
	ks *kv.Keyspace, n int) {
	t.Helper()
	hashed := false
	if info, err := admin.New(client).Keyspace(ctx, ks.Name()); err != nil {
		t.Fatal(err)
	} else {
		hashed = info.Hashed()
	}
	i := 0
	for p, err := range ks.Scan(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if !hashed && string(p.Key) != string(loadKey(i)) {
			t.Fatalf("record %d is %q", i, p.Key)
		}
		var number int
		if _, err := fmt.Sscanf(string(p.Key), "user/%d", &number); err != nil ||
			string(p.Value) != string(loadValue(number)) {
			t.Fatalf("%q has %q", p.Key, p.Value)
		}
		i++
	}
	if i != n {
		t.Fatalf("%d records of %d", i, n)
	}
	time.Sleep(5 * time.Second) // virtual; so that followers have applied everything
	for i := range c.Servers() {
		if p := c.Process(i); p != nil {
			problems, err := p.CheckState(ctx)
			if err != nil || len(problems) > 0 {
				t.Errorf("server %d: %v %v", i, problems, err)
			}
		}
	}
}

// A load that is cut off while servers lose their power is repeated, and then everything is there,
// once.
func TestBulkLoadAcrossCrashes(t *testing.T) {
	for _, hashed := range []bool{false, true} {
		t.Run(fmt.Sprintf("hashed=%v", hashed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const n = 100_000
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
				defer cancel()
				c := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
				client := c.Client(t)
				options := []kv.KeyspaceOption{kv.SplitSize(2 << 20)}
				if hashed {
					options = append(options, kv.Hash(3))
				} else {
					options = append(options, kv.Range())
				}
				ks, err := client.CreateKeyspace(ctx, "big", options...)
				if err != nil {
					t.Fatal(err)
				}
				order := rand.New(rand.NewPCG(1, 2)).Perm(n)
				records := recordsOf(n, order)
				stopped, stop := context.WithCancel(ctx)
				defer stop()
				crashed := 0
				done, err := ks.Load(stopped, records, kv.Presplit(), kv.OnLoadProgress(
					func(p kv.LoadProgress) {
						if p.Stage != kv.LoadWriting || p.Done < p.Total/3 {
							return
						}
						if crashed++; crashed == 1 {
							stop()
						}
					}))
				if !errors.Is(err, context.Canceled) || done.Written == 0 || done.Written == n {
					t.Fatalf("%+v, %v", done, err)
				}
				if done.Splits != done.Planned || done.Planned < 3 {
					t.Errorf("%d of %d splits: %v", done.Splits, done.Planned, done.Notes)
				}
				c.KillAll(50, 0, 1, 2)
				for i := range 3 {
					if err := c.Run(i); err != nil {
						t.Fatal(err)
					}
				}
				if err := c.WaitReady(ctx); err != nil {
					t.Fatal(err)
				}
				again, err := ks.Load(ctx, records, kv.Presplit())
				if err != nil {
					t.Fatal(err)
				}
				if again.Written+again.Present != n || again.Present < done.Written || again.Planned > 2 {
					t.Errorf("first %+v, then %+v", done, again)
				}
				third, err := ks.Load(ctx, records)
				if err != nil || third.Present != n || third.Written != 0 {
					t.Errorf("a third time: %+v, %v", third, err)
				}
				compareLoad(ctx, t, c, client, ks, n)
			})
		})
	}
}

// Blocks whose partition splits under them are cut again, and everything is there once.
func TestBulkLoadWhilePartitionsSplit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 60_000
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Minute)
		defer cancel()
		c := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := c.Client(t)
		ks, err := client.CreateKeyspace(ctx, "big", kv.Range())
		if err != nil {
			t.Fatal(err)
		}
		// Some are there, with another value, and one between them that stays.
		for i := 0; i < n; i += n / 10 {
			if _, err := ks.Put(ctx, loadKey(i), []byte("before")); err != nil {
				t.Fatal(err)
			}
		}
		var splitting sync.WaitGroup
		splitting.Go(func() {
			for i := 7; i > 0; i-- { // from the end, so that the load has not passed yet
				for {
					_, err := admin.New(client).SplitPartition(ctx, "big", loadKey(i*n/8))
					if err == nil || ctx.Err() != nil {
						break
					}
					time.Sleep(300 * time.Millisecond) // virtual; another split of it is under way
				}
			}
		})
		done, err := ks.Load(ctx, recordsOf(n, nil), kv.OnLoadProgress(func(p kv.LoadProgress) {
			if p.Stage == kv.LoadWriting {
				time.Sleep(300 * time.Millisecond) // virtual; so that splits overtake it
			}
		}))
		if err != nil || done.Written != n || !done.InOrder {
			t.Fatalf("%+v, %v", done, err)
		}
		splitting.Wait()
		parts, err := admin.New(client).Partitions(ctx, "big")
		if err != nil || len(parts) < 3 {
			t.Errorf("%d partitions, %v", len(parts), err)
		}
		compareLoad(ctx, t, c, client, ks, n)
	})
}
