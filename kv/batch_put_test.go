package kv_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// A BatchPut over several partitions is there at one timestamp, or not at all.
func TestBatchPut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{}).Client(t)
		for name, layout := range map[string]kv.KeyspaceOption{
			"hash": kv.Hash(4), "one": kv.Hash(1), "split": kv.Range([]byte("key3"), []byte("key6")),
		} {
			ks, err := client.CreateKeyspace(ctx, name, layout)
			if err != nil {
				t.Fatal(err)
			}
			var pairs []kv.Pair
			for i := range 10 {
				pairs = append(pairs,
					kv.Pair{Key: fmt.Appendf(nil, "key%d", i), Value: fmt.Appendf(nil, "v%d", i)})
			}
			before := client.Timestamp()
			at, err := ks.BatchPut(ctx, pairs)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			rows := 0
			for p, err := range ks.Scan(ctx, kv.At(at)) {
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				if p.Version != at || string(p.Value) != "v"+string(p.Key[3:]) {
					t.Fatalf("%s: %s = %s has version %s, want %s", name, p.Key, p.Value, p.Version, at)
				}
				rows++
			}
			if n, err := ks.Count(ctx, kv.At(before)); rows != 10 || n != 0 || err != nil {
				t.Fatalf("%s: %d rows at the timestamp, %d before it: %v", name, rows, n, err)
			}
			twice := append(slices.Clone(pairs), kv.Pair{Key: []byte("new")},
				kv.Pair{Key: []byte("key0")})
			if _, err := ks.BatchPut(ctx, twice); !errors.Is(err, kv.ErrInvalidArgument) {
				t.Fatalf("%s: a key that is given twice: %v", name, err)
			}
			if _, err := ks.BatchPut(ctx, []kv.Pair{{Key: []byte("new")}, {}}); !errors.Is(err,
				kv.ErrInvalidArgument) {
				t.Fatalf("%s: an empty key: %v", name, err)
			}
			if n, err := ks.Count(ctx); err != nil || n != 10 {
				t.Fatalf("%s: %d keys after refused batches: %v", name, n, err)
			}
			if at, err := ks.BatchPut(ctx, nil); err != nil || !at.IsZero() {
				t.Fatalf("%s: nothing was written at %s, %v", name, at, err)
			}
		}
		if _, err := client.Keyspace("none").BatchPut(ctx,
			[]kv.Pair{{Key: []byte("a")}}); !errors.Is(err, kv.ErrKeyspaceNotFound) {
			t.Fatalf("no keyspace: %v", err)
		}
	})
}

// No change that Modify makes is lost, however many make one at a time.
func TestModify(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		client := kvtest.Start(t, kvtest.Options{}).Client(t)
		ks, err := client.CreateKeyspace(ctx, "counters", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		key := []byte("visits")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					_, err := ks.Modify(ctx, key, func(old kv.Pair) (kv.Replacement, error) {
						var n uint64
						if old.Exists() {
							n = binary.BigEndian.Uint64(old.Value)
						}
						return kv.Set(binary.BigEndian.AppendUint64(nil, n+1)), nil
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		got, err := ks.Get(ctx, key)
		if err != nil || binary.BigEndian.Uint64(got.Value) != 80 {
			t.Fatalf("%x, %v; want 80", got.Value, err)
		}
		own := errors.New("not today")
		steps := []struct {
			name   string
			f      func(kv.Pair) (kv.Replacement, error)
			err    error
			exists bool
		}{
			{"keep", func(kv.Pair) (kv.Replacement, error) { return kv.Keep(), nil }, nil, true},
			{"refuse", func(kv.Pair) (kv.Replacement, error) { return kv.Delete(), own }, own, true},
			{"nothing", func(kv.Pair) (kv.Replacement, error) {
				return kv.Replacement{}, nil
			}, kv.ErrInvalidArgument, true},
			{"delete", func(old kv.Pair) (kv.Replacement, error) {
				old.Value[0] = 'x' // f's own
				return kv.Delete(), nil
			}, nil, false},
			{"keep none", func(kv.Pair) (kv.Replacement, error) { return kv.Keep(), nil }, nil, false},
			{"delete none", func(kv.Pair) (kv.Replacement, error) {
				return kv.Delete(), nil
			}, nil, false},
			{"set", func(kv.Pair) (kv.Replacement, error) { return kv.Set(nil), nil }, nil, true},
		}
		for _, s := range steps {
			pair, err := ks.Modify(ctx, key, s.f)
			if !errors.Is(err, s.err) {
				t.Fatalf("%s: %v, want %v", s.name, err, s.err)
			}
			now, found := ks.Get(ctx, key)
			if (found == nil) != s.exists {
				t.Fatalf("%s: the key exists: %v, want %v", s.name, found, s.exists)
			}
			if err == nil && (pair.Exists() != s.exists || pair.Version != now.Version ||
				string(pair.Value) != string(now.Value)) {
				t.Fatalf("%s: said %+v, is %+v", s.name, pair, now)
			}
		}
		var several severalErrors
		if _, err := ks.Modify(ctx, key, func(kv.Pair) (kv.Replacement, error) {
			return kv.Keep(), severalErrors{own}
		}); !errors.As(err, &several) {
			t.Fatalf("an error that cannot be compared: %v", err)
		}
		if _, err := ks.Modify(ctx, key, nil); !errors.Is(err, kv.ErrInvalidArgument) {
			t.Fatalf("no function: %v", err)
		}
	})
}

func TestCreateKeyspaceIfMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{})
		client := cluster.Client(t)
		split, err := kv.ParsePartitioning("range", []byte("g"), []byte("p"))
		if err != nil {
			t.Fatal(err)
		}
		var created int
		var mu sync.Mutex
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				ks, made, err := cluster.Client(t).CreateKeyspaceIfMissing(ctx, "users", split,
					kv.Replicas(3))
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := ks.Put(ctx, []byte("ada"), nil); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if made {
					created++
				}
			})
		}
		all.Wait()
		if created != 1 {
			t.Errorf("created by %d of 4", created)
		}
		info, err := admin.New(client).Keyspace(ctx, "users")
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%s %q", info.Partitioning(), info.SplitAt); got != `range ["g" "p"]` {
			t.Errorf("described as %s", got)
		}
		for _, options := range [][]kv.KeyspaceOption{
			{kv.Hash(32)}, {kv.Hash(8)}, {kv.Range(), kv.Replicas(1)}, {kv.Range(), kv.CommitWait()},
			{kv.Range(), kv.GCWindow(1e9)},
		} {
			_, _, err := client.CreateKeyspaceIfMissing(ctx, "users", options...)
			if !errors.Is(err, kv.ErrKeyspaceExists) {
				t.Errorf("another layout: %v", err)
			}
			t.Log(err)
		}
		if _, _, err := client.CreateKeyspaceIfMissing(ctx, "users", kv.Hash(0)); !errors.Is(err,
			kv.ErrInvalidArgument) {
			t.Errorf("a bad option: %v", err)
		}
	})
}

func TestParsePartitioning(t *testing.T) {
	key := []byte("g")
	for _, c := range []struct {
		text string
		at   [][]byte
		ok   bool
	}{
		{"hash:8", nil, true}, {"hash", nil, true}, {"range", nil, true},
		{"range", [][]byte{key}, true}, {"hash:16384", nil, true},
		{"hash:16385", nil, false}, {"hash:0", nil, false}, {"hash:-1", nil, false},
		{"hash:", nil, false}, {"hash:8", [][]byte{key}, false},
		{"range:3", nil, false}, {"", nil, false}, {"Hash:8", nil, false}, {"hash:8 ", nil, false},
	} {
		option, err := kv.ParsePartitioning(c.text, c.at...)
		if (err == nil) != c.ok || (option != nil) != c.ok ||
			(err != nil && !errors.Is(err, kv.ErrInvalidArgument)) {
			t.Errorf("%q %q: %v", c.text, c.at, err)
		}
	}
}

// One string with all endpoints will do.
func TestOpenWithAList(t *testing.T) {
	for _, endpoints := range [][]string{nil, {""}, {"127.0.0.1:1,"}, {"127.0.0.1:1", " "}} {
		if _, err := kv.Open(t.Context(), endpoints); !errors.Is(err, kv.ErrInvalidArgument) {
			t.Errorf("%q: %v", endpoints, err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		cluster := kvtest.Start(t, kvtest.Options{})
		list := []string{" " + strings.Join(cluster.Endpoints(), ", ")}
		client, err := kv.Open(t.Context(), list, kv.Dialer(cluster.Dialer("client")))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		if _, err := client.CreateKeyspace(t.Context(), "a", kv.Hash(1)); err != nil {
			t.Fatal(err)
		}
	})
}

// severalErrors is an error whose values cannot be compared.
type severalErrors []error

func (s severalErrors) Error() string { return errors.Join(s...).Error() }
