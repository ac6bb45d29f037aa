package kv_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
)

// A transaction over partitions deletes and locks keys of a keyspace with a default time to live:
// neither a deletion nor a lock has one.
func TestTransactionsBesideDefaultTTL(t *testing.T) {
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		keys := []string{"a", "b", "c", "d", "e"}
		for _, key := range keys {
			if _, err := ks.Put(ctx, []byte(key), []byte("v")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			for i, key := range keys {
				if i%2 == 0 {
					if err := tx.Delete(ks, []byte(key)); err != nil {
						return err
					}
				} else if _, err := tx.GetForUpdate(ctx, ks, []byte(key)); err != nil {
					return err
				}
			}
			return tx.Put(ks, []byte("f"), []byte("v"))
		}); err != nil {
			t.Fatal(err)
		}
		for i, key := range keys {
			if gone := absent(ctx, t, ks, key); gone != (i%2 == 0) {
				t.Errorf("%s is absent: %t", key, gone)
			}
		}
		pair, err := ks.Get(ctx, []byte("f"))
		if err != nil || pair.Expires.IsZero() {
			t.Errorf("%+v, %v; want an expiry by the default", pair, err)
		}
	}, kv.Hash(8), kv.DefaultTTL(time.Hour))
}

// Each way to write a value can say at which moment the value expires, and whatever says so is
// exact. A moment that has passed leaves the key without a value.
func TestExpiresAt(t *testing.T) {
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		soon, past := time.Now().Add(time.Minute).UTC(), time.Now().Add(-time.Hour)
		write := map[string]func(key []byte, at time.Time) error{
			"put": func(key []byte, at time.Time) error {
				_, err := ks.Put(ctx, key, []byte("v"), kv.ExpiresAt(at))
				return err
			},
			"batch": func(key []byte, at time.Time) error {
				_, err := ks.Batch().Put(key, []byte("v"), kv.ExpiresAt(at)).Commit(ctx)
				return err
			},
			"batch put": func(key []byte, at time.Time) error {
				_, err := ks.BatchPut(ctx, []kv.Pair{{Key: key, Value: []byte("v"), Expires: at},
					{Key: append(key, '2'), Value: []byte("v")}}, kv.NoTTL())
				return err
			},
			"modify": func(key []byte, at time.Time) error {
				pair, err := ks.Modify(ctx, key, func(kv.Pair) (kv.Replacement, error) {
					return kv.Set([]byte("v"), kv.ExpiresAt(at)), nil
				})
				if err == nil && at.Equal(soon) && !pair.Expires.Equal(at) {
					err = fmt.Errorf("modify says that it expires at %s", pair.Expires)
				}
				return err
			},
			"transaction": func(key []byte, at time.Time) error {
				_, err := client.Update(ctx, func(tx *kv.Txn) error {
					for i := range 8 { // in several partitions
						if err := tx.Put(ks, fmt.Append(key, i), []byte("v"), kv.NoTTL()); err != nil {
							return err
						}
					}
					return tx.Put(ks, key, []byte("v"), kv.ExpiresAt(at))
				})
				return err
			},
			"load": func(key []byte, at time.Time) error {
				done, err := ks.Load(ctx, pairs(kv.Pair{Key: key, Value: []byte("v"), Expires: at}))
				if err == nil && (done.Expired == 1) != at.Before(time.Now()) {
					err = fmt.Errorf("%d of the loaded records had expired", done.Expired)
				}
				return err
			},
		}
		for name, put := range write {
			if err := put([]byte(name), soon); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if pair, err := ks.Get(ctx, []byte(name)); err != nil || !pair.Expires.Equal(soon) {
				t.Errorf("%s: it expires at %s, want %s; %v", name, pair.Expires, soon, err)
			}
			for _, gone := range []time.Time{past, time.Unix(5, 0)} {
				if err := put([]byte(name), gone); err != nil {
					t.Fatalf("%s until %s: %v", name, gone, err)
				}
				if !absent(ctx, t, ks, name) {
					t.Errorf("%s: a value is there whose moment has passed: %s", name, gone)
				}
			}
			if err := put([]byte(name), kv.Forever()); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if pair, err := ks.Get(ctx, []byte(name)); err != nil || !pair.Expires.IsZero() {
				t.Errorf("%s for ever: it expires at %s; %v", name, pair.Expires, err)
			}
		}
		for _, bad := range []time.Time{time.Unix(0, 0), time.Unix(0, 1), time.Unix(-1, 0),
			time.Date(2300, 1, 1, 0, 0, 0, 0, time.UTC)} {
			if _, err := ks.Put(ctx, []byte("k"), nil, kv.ExpiresAt(bad)); !errors.Is(err,
				kv.ErrInvalidArgument) {
				t.Errorf("a put until %s: %v", bad, err)
			}
		}
	}, kv.Hash(4), kv.DefaultTTL(time.Hour))
}

// Loaded records keep their expiries, also when the load is repeated, and what is there with the
// same expiry is not written again.
func TestLoadKeepsExpiry(t *testing.T) {
	withExpiry(t, func(ctx context.Context, client *kv.Client, ks *kv.Keyspace) {
		at := time.Now().Add(10 * time.Minute).UTC()
		records := pairs(
			kv.Pair{Key: []byte("a"), Value: []byte("v"), Expires: at},
			kv.Pair{Key: []byte("b"), Value: []byte("v"), Expires: kv.Forever()},
			kv.Pair{Key: []byte("c"), Value: []byte("v")})
		for _, present := range []uint64{0, 3} {
			done, err := ks.Load(ctx, records, kv.TTL(time.Minute))
			if err != nil || done.Present != present || done.Written != 3-present {
				t.Fatalf("%+v, %v; want %d that are present", done, err, present)
			}
		}
		get := func(key string) time.Time {
			t.Helper()
			pair, err := ks.Get(ctx, []byte(key))
			if err != nil {
				t.Fatal(err)
			}
			return pair.Expires
		}
		if !get("a").Equal(at) || !get("b").IsZero() || get("c").IsZero() || get("c").After(at) {
			t.Errorf("they expire at %s, %s and %s", get("a"), get("b"), get("c"))
		}
		later := at.Add(time.Minute)
		done, err := ks.Load(ctx, pairs(kv.Pair{Key: []byte("a"), Value: []byte("v"), Expires: later}))
		if err != nil || done.Written != 1 || !get("a").Equal(later) {
			t.Errorf("a record with a later expiry: %+v, %v; it expires at %s", done, err, get("a"))
		}
		time.Sleep(20 * time.Minute) // virtual
		if !absent(ctx, t, ks, "a") || absent(ctx, t, ks, "b") || !absent(ctx, t, ks, "c") {
			t.Error("not those expired that were to")
		}
	}, kv.Hash(2))
}

func pairs(all ...kv.Pair) func() iter.Seq2[kv.Pair, error] {
	return func() iter.Seq2[kv.Pair, error] {
		return func(yield func(kv.Pair, error) bool) {
			for _, p := range all {
				if !yield(p, nil) {
					return
				}
			}
		}
	}
}

// A value that is there already is renewed by a load with a time to live, once less than half of
// that is left of it; and a value that would live for longer than the load says is cut down to it.
func TestLoadRenewsWhatIsAboutToExpire(t *testing.T) {
	withExpiry(t, func(ctx context.Context, _ *kv.Client, ks *kv.Keyspace) {
		key, value := []byte("k"), []byte("v")
		load := func(options ...kv.LoadOption) (present uint64) {
			t.Helper()
			done, err := ks.Load(ctx, pairs(kv.Pair{Key: key, Value: value}), options...)
			if err != nil || done.Present+done.Written != 1 {
				t.Fatalf("%+v, %v", done, err)
			}
			return done.Present
		}
		lives := func(want time.Duration) {
			t.Helper()
			pair, err := ks.Get(ctx, key)
			if left := time.Until(pair.Expires); err != nil || left > want || left < want/2 {
				t.Errorf("it lives for %s more, want %s; %v", left, want, err)
			}
		}
		for ttl, option := range map[time.Duration][]kv.LoadOption{
			6 * time.Minute: {kv.TTL(6 * time.Minute)}, 3 * time.Minute: nil} { // the keyspace's default
			for _, old := range []kv.WriteOption{kv.TTL(5 * time.Second), kv.TTL(time.Hour),
				kv.TTL(ttl * 2 / 5), kv.NoTTL()} {
				if _, err := ks.Put(ctx, key, value, old); err != nil {
					t.Fatal(err)
				}
				if load(option...) != 0 {
					t.Errorf("%s: a value with another expiry is taken for the same", ttl)
				}
				lives(ttl)
			}
			time.Sleep(ttl / 3) // virtual
			if load(option...) != 1 {
				t.Errorf("%s: the load is repeated, and writes the value again", ttl)
			}
			time.Sleep(ttl / 3) // virtual
			if load(option...) != 0 {
				t.Errorf("%s: the value has a third of its life left, and is not renewed", ttl)
			}
			lives(ttl)
		}
		if load(kv.NoTTL()) != 0 || load(kv.NoTTL()) != 1 {
			t.Error("a value that expires is taken for the same as one that does not")
		}
	}, kv.Hash(2), kv.DefaultTTL(3*time.Minute))
}
