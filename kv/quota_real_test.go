package kv_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// quotaTest is a cluster of three servers in virtual time, whose garbage collection is quick.
type quotaTest struct {
	*testing.T
	ctx    context.Context
	client *kv.Client
	ks     *kv.Keyspace
}

func withQuota(t *testing.T, f func(*quotaTest), options ...kv.KeyspaceOption) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond,
			Configure: func(_ int, c *embedded.ServerConfig) { c.GCInterval = time.Second }})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "orders", options...)
		if err != nil {
			t.Fatal(err)
		}
		f(&quotaTest{t, ctx, client, ks})
	})
}

// alter changes the keyspace.
func (t *quotaTest) alter(options ...kv.AlterOption) {
	t.Helper()
	if err := t.client.AlterKeyspace(t.ctx, "orders", options...); err != nil {
		t.Fatal(err)
	}
}

// Many clients together get what the quota of requests allows, and no error as long as they wait.
// A raised quota counts at once.
func TestQuotaOfRequests(t *testing.T) {
	withQuota(t, func(t *quotaTest) {
		var done atomic.Int64
		ctx, stop := context.WithCancel(t.ctx)
		var clients sync.WaitGroup
		for i := range 30 {
			clients.Go(func() {
				for n := 0; ctx.Err() == nil; n++ {
					key := fmt.Appendf(nil, "%d %d", i, n%10)
					_, err := t.ks.Put(ctx, key, key)
					if ctx.Err() != nil {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
					done.Add(1)
				}
			})
		}
		rate := func(d time.Duration) float64 {
			before := done.Load()
			time.Sleep(d) // virtual
			return float64(done.Load()-before) / d.Seconds()
		}
		rate(10 * time.Second) // the parts of the nodes settle
		if got := rate(20 * time.Second); got < 80 || got > 120 {
			t.Errorf("%.0f requests a second, the quota is 100", got)
		}
		info, err := admin.New(t.client).Keyspace(t.ctx, "orders")
		if err != nil || info.Quotas.Requests != 100 || info.Used == nil || info.Used.Requests < 100 {
			t.Errorf("%+v, %+v, %v", info.Quotas, info.Used, err)
		}
		t.alter(kv.QuotaRequests(500))
		if got := rate(4 * time.Second); got < 300 {
			t.Errorf("%.0f requests a second, when the quota is raised to 500", got)
		}
		t.alter(kv.QuotaRequests(0))
		rate(time.Second)
		if got := rate(time.Second); got < 1000 {
			t.Errorf("%.0f requests a second without a quota", got)
		}
		stop()
		clients.Wait()
	}, kv.Hash(6), kv.QuotaRequests(100))
}

// A request for which there is no room until its context ends fails with a kind of its own, and
// says which quota it was. Its outcome is known.
func TestQuotaErrors(t *testing.T) {
	withQuota(t, func(t *quotaTest) {
		key := []byte("key")
		var err error
		for range 20 {
			ctx, cancel := context.WithTimeout(t.ctx, 200*time.Millisecond)
			_, err = t.ks.Put(ctx, key, key)
			cancel()
			if err != nil {
				break
			}
		}
		if !errors.Is(err, kv.ErrQuota) || !errors.Is(err, kv.ErrOverloaded) ||
			errors.Is(err, kv.ErrOutcomeUnknown) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		for _, part := range []string{`keyspace "orders" has reached its quota of 2 requests a second`,
			"node ", "tidemark keyspace alter orders --quota-requests"} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q lacks %q", err, part)
			}
		}
		t.alter(kv.QuotaRequests(0), kv.QuotaThroughput(64<<10))
		// Reads of 16 KiB, four a second.
		if _, err := t.ks.Put(t.ctx, key, make([]byte, 16<<10)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // virtual
		began := time.Now()
		for range 84 {
			if _, err := t.ks.Get(t.ctx, key); err != nil {
				t.Fatal(err)
			}
		}
		// All of them are of one partition: its node gets nearly all of the quota.
		if took := time.Since(began); took < 16*time.Second || took > 26*time.Second {
			t.Errorf("84 reads of 16 KiB took %s, at 64 KiB a second", took)
		}
	}, kv.Hash(2), kv.QuotaRequests(2))
}

// At the quota of stored bytes nothing is added, in whatever way, while reads and deletions go on.
// When what was deleted has been collected, or the quota is raised, writes go on.
func TestQuotaOfBytes(t *testing.T) {
	const quota = 4 << 20
	withQuota(t, func(t *quotaTest) {
		value := make([]byte, 32<<10)
		n := 0
		var err error
		for ; n < 1000; n++ {
			if _, err = t.ks.Put(t.ctx, fmt.Appendf(nil, "%05d", n), value); err != nil {
				break
			}
			time.Sleep(100 * time.Millisecond) // virtual: 320 KiB a second
		}
		if !errors.Is(err, kv.ErrQuota) || errors.Is(err, kv.ErrOverloaded) ||
			errors.Is(err, kv.ErrOutcomeUnknown) ||
			!strings.Contains(err.Error(), "tidemark keyspace alter orders --quota-bytes") {
			t.Fatalf("after %d values: %v", n, err)
		}
		// What is written in the seconds until a size has come to the core and back may be too much.
		if stored := n * len(value); stored < quota-quota/10 || stored > quota+10*(320<<10) {
			t.Errorf("refused after %d bytes; the quota is %d", stored, quota)
		}
		time.Sleep(10 * time.Second) // virtual: until all nodes have heard of the size
		info, err := admin.New(t.client).Keyspace(t.ctx, "orders")
		if err != nil || info.Used == nil || info.Used.Bytes < quota {
			t.Errorf("%+v, %v", info.Used, err)
		}
		first, other := []byte("00000"), []byte("other")
		for what, write := range map[string]func() error{
			"put": func() error { _, err := t.ks.Put(t.ctx, first, value); return err },
			"batch": func() error {
				_, err := t.ks.Batch().Put(other, value).Commit(t.ctx)
				return err
			},
			"swap": func() error {
				_, err := t.ks.CompareAndSwap(t.ctx, other, kv.ExpectAbsent(), kv.Set(value))
				return err
			},
			"increment": func() error { _, _, err := t.ks.Increment(t.ctx, other, 1); return err },
			"transaction": func() error {
				_, err := t.client.Update(t.ctx, func(tx *kv.Txn) error {
					return tx.Put(t.ks, other, value)
				})
				return err
			},
			"load": func() error {
				_, err := t.ks.Load(t.ctx, func() iter.Seq2[kv.Pair, error] {
					return func(yield func(kv.Pair, error) bool) {
						yield(kv.Pair{Key: other, Value: value}, nil)
					}
				})
				return err
			},
		} {
			if err := write(); !errors.Is(err, kv.ErrQuota) || errors.Is(err, kv.ErrOutcomeUnknown) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := t.ks.Get(t.ctx, other); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("what was refused is there: %v", err)
		}
		if p, err := t.ks.Get(t.ctx, first); err != nil || len(p.Value) != len(value) {
			t.Errorf("get: %v", err)
		}
		// A raised quota counts at once.
		t.alter(kv.QuotaBytes(2 * quota))
		time.Sleep(time.Second) // virtual: the nodes hear of it
		if _, err := t.ks.Put(t.ctx, other, value); err != nil {
			t.Errorf("below a raised quota: %v", err)
		}
		t.alter(kv.QuotaBytes(quota))
		time.Sleep(time.Second) // virtual
		if _, err := t.ks.Put(t.ctx, other, value); !errors.Is(err, kv.ErrQuota) {
			t.Errorf("beyond a lowered quota: %v", err)
		}
		if _, err := t.ks.Delete(t.ctx, first); err != nil {
			t.Errorf("delete: %v", err)
		}
		if _, err := t.client.Update(t.ctx, func(tx *kv.Txn) error {
			return tx.Delete(t.ks, []byte("00001"))
		}); err != nil {
			t.Errorf("delete in a transaction: %v", err)
		}
		for i := 2; i < n; i++ {
			if _, err := t.ks.Delete(t.ctx, fmt.Appendf(nil, "%05d", i)); err != nil {
				t.Fatalf("delete: %v", err)
			}
		}
		deleted := time.Now()
		for {
			_, err := t.ks.Put(t.ctx, other, value)
			if err == nil {
				break
			}
			if !errors.Is(err, kv.ErrQuota) || time.Since(deleted) > time.Minute {
				t.Fatalf("%s after everything was deleted: %v", time.Since(deleted), err)
			}
			time.Sleep(time.Second) // virtual
		}
	}, kv.Hash(2), kv.GCWindow(2*time.Second), kv.QuotaBytes(quota))
}

// Quotas are settings like others: they are compared with what is there, and shown.
func TestQuotaSettings(t *testing.T) {
	withQuota(t, func(t *quotaTest) {
		for _, c := range []struct {
			option kv.KeyspaceOption
			want   string
		}{
			{kv.QuotaBytes(10 << 30), ""},
			{kv.QuotaRequests(0), ""},
			{kv.QuotaBytes(1), "a quota of stored bytes of 10 GiB instead of 1 bytes"},
			{kv.QuotaThroughput(1 << 20), "a quota of bytes a second of none instead of 1 MiB"},
		} {
			_, _, err := t.client.CreateKeyspaceIfMissing(t.ctx, "orders", kv.Hash(1), c.option)
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		}
		err := t.client.AlterKeyspace(t.ctx, "orders", kv.QuotaThroughput(1))
		if !errors.Is(err, kv.ErrInvalidArgument) || !strings.Contains(err.Error(), "from 1024") {
			t.Errorf("%v", err)
		}
		info, err := admin.New(t.client).Keyspace(t.ctx, "orders")
		if want := (admin.Quotas{Bytes: 10 << 30}); err != nil || info.Quotas != want {
			t.Errorf("%+v, %v", info.Quotas, err)
		}
	}, kv.Hash(1), kv.QuotaBytes(10<<30))
}
