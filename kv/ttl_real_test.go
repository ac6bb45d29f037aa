package kv_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// withExpiry runs a test with a keyspace of a real cluster, in virtual time.
func withExpiry(t *testing.T, f func(ctx context.Context, client *kv.Client, ks *kv.Keyspace),
	options ...kv.KeyspaceOption) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "things", options...)
		if err != nil {
			t.Fatal(err)
		}
		f(ctx, client, ks)
		time.Sleep(10 * time.Second) // virtual; so that followers have applied everything
		for i := range cluster.Servers() {
			problems, err := cluster.Process(i).CheckState(ctx)
			if err != nil || len(problems) > 0 {
				t.Errorf("server %d: %v %v", i, problems, err)
			}
		}
	})
}

// absent says whether Get finds no value.
func absent(ctx context.Context, t *testing.T, ks *kv.Keyspace, key string) bool {
	t.Helper()
	_, err := ks.Get(ctx, []byte(key))
	if err != nil && !errors.Is(err, kv.ErrNotFound) {
		t.Fatal(err)
	}
	return err != nil
}

// Whatever writes a value can say how long it lives: it is there until then, with its expiry, and
// gone afterwards, for whatever reads.
func TestTTL(t *testing.T) {
	const ttl = 10 * time.Second
	all := []string{"put", "batch", "batch put", "swap", "count", "txn", "modify"}
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		write := map[string]func(key []byte) (kv.Timestamp, error){
			"put": func(key []byte) (kv.Timestamp, error) {
				return ks.Put(ctx, key, []byte("1"), kv.TTL(ttl))
			},
			"batch": func(key []byte) (kv.Timestamp, error) {
				return ks.Batch().Put(key, []byte("1"), kv.TTL(ttl)).Commit(ctx)
			},
			"batch put": func(key []byte) (kv.Timestamp, error) {
				return ks.BatchPut(ctx, []kv.Pair{{Key: key, Value: []byte("1")},
					{Key: []byte("other"), Value: []byte("1")}}, kv.TTL(ttl))
			},
			"swap": func(key []byte) (kv.Timestamp, error) {
				swap, err := ks.CompareAndSwap(ctx, key, kv.ExpectAbsent(),
					kv.Set([]byte("1"), kv.TTL(ttl)))
				return swap.Version, err
			},
			"count": func(key []byte) (kv.Timestamp, error) {
				_, at, err := ks.Increment(ctx, key, 1, kv.TTL(ttl))
				return at, err
			},
			"txn": func(key []byte) (kv.Timestamp, error) {
				return client.Update(ctx, func(tx *kv.Txn) error {
					if _, err := tx.Increment(ctx, ks, []byte("other"), 1, kv.TTL(ttl)); err != nil {
						return err
					}
					return tx.Put(ks, key, []byte("1"), kv.TTL(ttl))
				})
			},
			"modify": func(key []byte) (kv.Timestamp, error) {
				p, err := ks.Modify(ctx, key, func(kv.Pair) (kv.Replacement, error) {
					return kv.Set([]byte("1"), kv.TTL(ttl)), nil
				})
				if want := p.Version.Time().Add(ttl); err == nil && !p.Expires.Equal(want) {
					t.Errorf("modify says that it expires at %s, want %s", p.Expires, want)
				}
				return p.Version, err
			},
		}
		first, last := kv.Timestamp{}, kv.Timestamp{}
		for _, name := range all {
			at, err := write[name]([]byte(name))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if first.IsZero() {
				first = at
			}
			last = at
			p, err := ks.Get(ctx, []byte(name))
			if want := at.Time().Add(ttl); err != nil || !p.Expires.Equal(want) || p.Version != at {
				t.Errorf("%s at %s: %+v, %v, want the expiry %s", name, at, p, err, want)
			}
		}
		if swap, err := ks.CompareAndSwap(ctx, []byte("put"), kv.ExpectAbsent(),
			kv.Set(nil)); err != nil || swap.Current.Expires.IsZero() {
			t.Errorf("a failed compare-and-swap says %+v, %v", swap, err)
		}
		read := func() (found []string) {
			t.Helper()
			for p, err := range ks.Scan(ctx) {
				if err != nil || p.Expires.IsZero() {
					t.Fatalf("%+v, %v", p, err)
				}
				found = append(found, string(p.Key))
			}
			n, err := ks.Count(ctx)
			if err != nil || int(n) != len(found) {
				t.Errorf("counted %d, scanned %q, %v", n, found, err)
			}
			err = client.View(ctx, func(s *kv.Snapshot) error {
				n, err := s.Count(ctx, ks)
				if err == nil && int(n) != len(found) {
					t.Errorf("a view counted %d, scanned %q", n, found)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
			var keys [][]byte
			for _, name := range append([]string{"other"}, all...) {
				keys = append(keys, []byte(name))
			}
			pairs, err := ks.BatchGet(ctx, keys)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, p := range pairs {
				if p.Exists() {
					got++
					if p.Expires.IsZero() {
						t.Errorf("%s comes without its expiry", p.Key)
					}
				}
			}
			if got != len(found) {
				t.Errorf("a batch get found %d, a scan %q", got, found)
			}
			return found
		}
		if found := read(); len(found) != len(all)+1 {
			t.Errorf("%q are there", found)
		}
		time.Sleep(ttl + time.Second) // virtual
		if found := read(); len(found) != 0 {
			t.Errorf("%q have not expired", found)
		}
		// The past is as it was: at the expiry it is gone, just before it is there.
		expiry := kv.TimestampOf(first.Time().Add(ttl))
		if _, err := ks.Get(ctx, []byte("put"), kv.At(expiry)); !errors.Is(err, kv.ErrNotFound) {
			t.Errorf("at the expiry: %v", err)
		}
		if _, err := ks.Get(ctx, []byte("put"), kv.At(expiry.Add(-1))); err != nil {
			t.Errorf("just before the expiry: %v", err)
		}
		if n, err := ks.Count(ctx, kv.At(last)); err != nil || int(n) != len(all)+1 {
			t.Errorf("%d were there at %s, %v", n, last, err)
		}
		// Of what has expired nothing is left for what looks before it writes.
		if sum, _, err := ks.Increment(ctx, []byte("count"), 5); err != nil || sum != 5 {
			t.Errorf("the sum is %d, %v", sum, err)
		}
		if existed, err := ks.Delete(ctx, []byte("put")); err != nil || existed {
			t.Errorf("it existed: %t, %v", existed, err)
		}
		if swap, err := ks.CompareAndSwap(ctx, []byte("batch"), kv.ExpectAbsent(),
			kv.Set([]byte("2"))); err != nil || !swap.Swapped {
			t.Errorf("swapped: %+v, %v", swap, err)
		}
		if n, err := ks.DeleteRange(ctx, kv.All()); err != nil || n != 2 {
			t.Errorf("deleted %d, %v", n, err)
		}
	}, kv.Range([]byte("m")))
}

// What a transaction has read must not expire before it commits: whether it has read it by itself,
// in a span, or under a lock, and whether it commits in one phase or two.
func TestReadsExpireBeforeTheCommit(t *testing.T) {
	const ttl = 20 * time.Second
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		get := func(tx *kv.Txn) (bool, error) {
			_, err := tx.Get(ctx, ks, []byte("k"))
			return err == nil, none(err)
		}
		lock := func(tx *kv.Txn) (bool, error) {
			_, err := tx.GetForUpdate(ctx, ks, []byte("k"))
			return err == nil, none(err)
		}
		scan := func(tx *kv.Txn) (found bool, err error) {
			for _, err := range tx.Scan(ctx, ks, kv.Prefix([]byte("k"))) {
				return err == nil, err
			}
			return false, nil
		}
		count := func(tx *kv.Txn) (bool, error) {
			n, err := tx.Count(ctx, ks, kv.Prefix([]byte("k")))
			return n > 0, err
		}
		for name, read := range map[string]func(*kv.Txn) (bool, error){"get": get, "lock": lock,
			"scan": scan, "count": count} {
			for _, writes := range []string{"l", "k", "lz", "kz"} {
				what := fmt.Sprintf("%s, then %s is written", name, writes)
				if _, err := ks.Put(ctx, []byte("k"), []byte("v"), kv.TTL(ttl)); err != nil {
					t.Fatal(err)
				}
				attempts := 0
				saw := false
				at, err := client.Update(ctx, func(tx *kv.Txn) (err error) {
					if saw, err = read(tx); err != nil {
						return err
					}
					if attempts++; attempts == 1 {
						time.Sleep(ttl + time.Second) // virtual
					}
					for _, key := range writes {
						if err := tx.Put(ks, []byte(string(key)), fmt.Append(nil, saw)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil || saw || attempts < 2 {
					t.Errorf("%s: committed at %s in attempt %d, after it saw a value: %t, %v", what, at,
						attempts, saw, err)
				}
			}
			if _, err := ks.DeleteRange(ctx, kv.All()); err != nil {
				t.Fatal(err)
			}
		}
		// The locks of a transaction that the caller ends are replicated: nothing else would look at
		// the key again.
		for _, writes := range []string{"l", "k", "lz", "kz"} {
			if _, err := ks.Put(ctx, []byte("k"), []byte("v"), kv.TTL(ttl)); err != nil {
				t.Fatal(err)
			}
			tx, err := client.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if saw, err := lock(tx); err != nil || !saw {
				t.Fatalf("under a lock it saw a value: %t, %v", saw, err)
			}
			time.Sleep(ttl + time.Second) // virtual
			for _, key := range writes {
				if err := tx.Put(ks, []byte(string(key)), []byte("1")); err != nil {
					t.Fatal(err)
				}
			}
			if at, err := tx.Commit(ctx); !errors.Is(err, kv.ErrConflict) {
				t.Errorf("a lock, then %s is written: committed at %s, %v", writes, at, err)
			}
		}
		// And what does not expire before stands.
		attempts := 0
		if _, err := ks.Put(ctx, []byte("k"), []byte("v"), kv.TTL(time.Hour)); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			attempts++
			for _, read := range []func(*kv.Txn) (bool, error){get, lock, scan, count} {
				if saw, err := read(tx); err != nil || !saw {
					return fmt.Errorf("it is not there: %w", err)
				}
			}
			time.Sleep(time.Second) // virtual
			return errors.Join(tx.Put(ks, []byte("k"), []byte("1")), tx.Put(ks, []byte("z"), []byte("1")))
		}); err != nil || attempts != 1 {
			t.Errorf("%d attempts, %v", attempts, err)
		}
	}, kv.Range([]byte("m")))
}

// none takes away that there is no value.
func none(err error) error {
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}

// A keyspace has a default, which can be altered, and which a write can do without.
func TestDefaultTTL(t *testing.T) {
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		info, err := admin.New(client).Keyspace(ctx, ks.Name())
		if err != nil || info.DefaultTTL != time.Minute {
			t.Fatalf("the default is %s, %v", info.DefaultTTL, err)
		}
		lives := func(key string) time.Duration {
			t.Helper()
			p, err := ks.Get(ctx, []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			if p.Expires.IsZero() {
				return 0
			}
			return p.Expires.Sub(p.Version.Time())
		}
		put := func(key string, options ...kv.WriteOption) {
			t.Helper()
			if _, err := ks.Put(ctx, []byte(key), []byte("v"), options...); err != nil {
				t.Fatal(err)
			}
		}
		put("a")
		put("b", kv.NoTTL())
		put("c", kv.TTL(0))
		put("d", kv.TTL(time.Second))
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			return errors.Join(tx.Put(ks, []byte("e"), []byte("v")),
				tx.Put(ks, []byte("z"), []byte("v"), kv.NoTTL()))
		}); err != nil {
			t.Fatal(err)
		}
		records := func() iter.Seq2[kv.Pair, error] {
			return func(yield func(kv.Pair, error) bool) {
				yield(kv.Pair{Key: []byte("l"), Value: []byte("v")}, nil)
			}
		}
		if _, err := ks.Load(ctx, records); err != nil {
			t.Fatal(err)
		}
		for key, want := range map[string]time.Duration{"a": time.Minute, "b": 0, "c": 0,
			"d": time.Second, "e": time.Minute, "z": 0, "l": time.Minute} {
			if got := lives(key); got != want {
				t.Errorf("%s lives %s, want %s", key, got, want)
			}
		}
		// A minute is less than half of an hour, so the first load of these renews the value.
		for present := range uint64(2) {
			loaded, err := ks.Load(ctx, records, kv.TTL(time.Hour))
			if err != nil || uint64(loaded.Present) != present {
				t.Errorf("loaded again, %d times before: %+v, %v", present, loaded, err)
			}
		}
		if _, err := ks.Load(ctx, records, kv.NoTTL()); err != nil || lives("l") != 0 {
			t.Errorf("loaded for ever, it lives %s, %v", lives("l"), err)
		}
		for _, d := range []time.Duration{time.Hour, 0} {
			if err := client.AlterKeyspace(ctx, "things", kv.DefaultTTL(d)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Second) // virtual; the nodes hear of it
			if put("a"); lives("a") != d {
				t.Errorf("with a default of %s it lives %s", d, lives("a"))
			}
		}
		for _, d := range []time.Duration{time.Microsecond, -time.Second, kv.MaxTTL + 1,
			1500 * time.Microsecond} {
			if err := client.AlterKeyspace(ctx, "things", kv.DefaultTTL(d)); !errors.Is(err,
				kv.ErrInvalidArgument) || !strings.Contains(err.Error(), "time to live") {
				t.Errorf("a default of %s: %v", d, err)
			}
		}
		// The same once more is the same keyspace; another default is not.
		if _, _, err := client.CreateKeyspaceIfMissing(ctx, "things", kv.Range([]byte("m")),
			kv.DefaultTTL(0)); err != nil {
			t.Error(err)
		}
		if _, _, err := client.CreateKeyspaceIfMissing(ctx, "things", kv.Range([]byte("m")),
			kv.DefaultTTL(time.Minute)); !errors.Is(err, kv.ErrKeyspaceExists) {
			t.Error(err)
		}
	}, kv.Range([]byte("m")), kv.DefaultTTL(time.Minute))
}

// What is no time to live is refused before anything is sent, by every write.
func TestTTLIsChecked(t *testing.T) {
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		key := []byte("k")
		for _, d := range []time.Duration{1, -1, -time.Second, time.Microsecond, kv.MaxTTL + 1} {
			bad := kv.TTL(d)
			_, put := ks.Put(ctx, key, nil, bad)
			_, batch := ks.Batch().Put(key, nil, bad).Commit(ctx)
			_, batchPut := ks.BatchPut(ctx, []kv.Pair{{Key: key}}, bad)
			_, swap := ks.CompareAndSwap(ctx, key, kv.ExpectAbsent(), kv.Set(nil, bad))
			_, _, increment := ks.Increment(ctx, key, 1, bad)
			_, modify := ks.Modify(ctx, key, func(kv.Pair) (kv.Replacement, error) {
				return kv.Set(nil, bad), nil
			})
			_, load := ks.Load(ctx, nil, bad)
			errs := []error{put, batch, batchPut, swap, increment, modify, load}
			if _, err := client.Update(ctx, func(tx *kv.Txn) error {
				_, swap := tx.CompareAndSwap(ctx, ks, key, kv.ExpectAbsent(), kv.Set(nil, bad))
				_, increment := tx.Increment(ctx, ks, key, 1, bad)
				errs = append(errs, tx.Put(ks, key, nil, bad), swap, increment)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			for i, err := range errs {
				if !errors.Is(err, kv.ErrInvalidArgument) ||
					!strings.Contains(err.Error(), "time to live") {
					t.Errorf("%s, write %d: %v", d, i, err)
				}
			}
		}
		if !absent(ctx, t, ks, "k") {
			t.Error("something was written")
		}
		for _, d := range []time.Duration{kv.MinTTL, kv.MaxTTL} {
			if _, err := ks.Put(ctx, key, nil, kv.TTL(d)); err != nil {
				t.Errorf("%s: %v", d, err)
			}
		}
	}, kv.Hash(1))
}

// Partitions of which every key has one version are cleared of what has expired, over a split, a
// merge and a change of leaders, and the count of what is there stays right.
func TestExpiredIsCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		c := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := c.Client(t)
		ks, err := client.CreateKeyspace(ctx, "things", kv.Range(), kv.GCWindow(time.Second),
			kv.AutoSplit(false))
		if err != nil {
			t.Fatal(err)
		}
		const n = 100
		for i := range n {
			options := []kv.WriteOption{kv.TTL(20 * time.Minute)}
			if i%2 == 0 {
				options = []kv.WriteOption{kv.TTL(90 * time.Second)}
			}
			if _, err := ks.Put(ctx, fmt.Appendf(nil, "k%03d", i), []byte("v"), options...); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := ks.Put(ctx, []byte("stays"), []byte("v")); err != nil {
			t.Fatal(err)
		}
		live := func() (keys uint64) {
			t.Helper()
			parts, err := admin.New(client).Partitions(ctx, "things")
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range parts {
				keys += p.LiveKeys
			}
			return keys
		}
		if _, err := admin.New(client).SplitPartition(ctx, "things", []byte("k050")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual
		if got := live(); got != n+1 {
			t.Errorf("%d keys count before anything expires", got)
		}
		time.Sleep(5 * time.Minute) // virtual
		if got := live(); got != n/2+1 {
			t.Errorf("%d keys count when half of them have expired and are collected", got)
		}
		// Another node leads, and knows nothing of what was looked at.
		c.KillAll(0, 0, 1, 2)
		for i := range 3 {
			if err := c.Run(i); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		parts, err := admin.New(client).Partitions(ctx, "things")
		if err != nil || len(parts) != 2 {
			t.Fatalf("%d partitions, %v", len(parts), err)
		}
		if _, err := admin.New(client).MergePartition(ctx, parts[0].ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Minute) // virtual
		if got := live(); got != 1 {
			t.Errorf("%d keys count when all have expired but one", got)
		}
		for i := range c.Servers() {
			problems, err := c.Process(i).CheckState(ctx)
			if err != nil || len(problems) > 0 {
				t.Errorf("server %d: %v %v", i, problems, err)
			}
		}
	})
}
