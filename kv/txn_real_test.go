package kv_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// add adds to a number that is kept as text.
func add(ctx context.Context, tx *kv.Txn, ks *kv.Keyspace, key string, n int, lock bool) error {
	get := tx.Get
	if lock {
		get = tx.GetForUpdate
	}
	p, err := get(ctx, ks, []byte(key))
	old := 0
	if err == nil {
		old, err = strconv.Atoi(string(p.Value))
	} else if errors.Is(err, kv.ErrNotFound) {
		err = nil
	}
	if err != nil {
		return err
	}
	return tx.Put(ks, []byte(key), []byte(strconv.Itoa(old+n)))
}

// bankTotal sums all accounts of both keyspaces, at one moment.
func bankTotal(ctx context.Context, s *kv.Snapshot, spaces []*kv.Keyspace) (total int, err error) {
	for _, ks := range spaces {
		for p, err := range s.Scan(ctx, ks) {
			if err != nil {
				return 0, err
			}
			n, err := strconv.Atoi(string(p.Value))
			if err != nil {
				return 0, err
			}
			total += n
		}
	}
	return total, nil
}

// Transactions against real servers: over a hash and a range keyspace, with and without locks,
// while others read.
func TestTransactionsAgainstRealServers(t *testing.T) {
	for name, options := range map[string][]kv.TxnOption{"read restart": nil,
		"commit wait": {kv.CommitWait()}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { transfers(t, options) })
		})
	}
}

func transfers(t *testing.T, options []kv.TxnOption) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
	client := cluster.Client(t)
	hash, err := client.CreateKeyspace(ctx, "hash", kv.Hash(4))
	if err != nil {
		t.Fatal(err)
	}
	ranged, err := client.CreateKeyspace(ctx, "range", kv.Range([]byte("a3")))
	if err != nil {
		t.Fatal(err)
	}
	spaces := []*kv.Keyspace{hash, ranged}
	const accounts, each = 6, 100
	if _, err := client.Update(ctx, func(tx *kv.Txn) error {
		for i := range accounts {
			for _, ks := range spaces {
				if err := tx.Put(ks, fmt.Appendf(nil, "a%d", i), []byte(strconv.Itoa(each))); err != nil {
					return err
				}
			}
		}
		return nil
	}, options...); err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	for n := range 6 {
		clients.Go(func() {
			random := rand.New(rand.NewPCG(uint64(n), 3))
			for range 15 {
				from, to := random.IntN(accounts), random.IntN(accounts)
				a, b := spaces[random.IntN(2)], spaces[random.IntN(2)]
				lock := random.IntN(3) == 0
				amount := 1 + random.IntN(9)
				_, err := client.Update(ctx, func(tx *kv.Txn) error {
					if err := add(ctx, tx, a, fmt.Sprintf("a%d", from), -amount, lock); err != nil {
						return err
					}
					return add(ctx, tx, b, fmt.Sprintf("a%d", to), amount, lock)
				}, options...)
				if err != nil {
					t.Error(err)
				}
				if err := client.View(ctx, func(s *kv.Snapshot) error {
					total, err := bankTotal(ctx, s, spaces)
					if err == nil && total != 2*accounts*each {
						t.Errorf("at %s the accounts hold %d", s.Timestamp(), total)
					}
					return err
				}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	clients.Wait()
}

// One key that all clients increment: all increments are there, and no client waits for ever.
func TestIncrementsOfOneKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(2))
		if err != nil {
			t.Fatal(err)
		}
		const workers, each = 8, 10
		var clients sync.WaitGroup
		for range workers {
			clients.Go(func() {
				for range each {
					if _, err := client.Update(ctx, func(tx *kv.Txn) error {
						return add(ctx, tx, ks, "n", 1, false)
					}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		clients.Wait()
		if p, err := ks.Get(ctx, []byte("n")); err != nil ||
			string(p.Value) != strconv.Itoa(workers*each) {
			t.Errorf("%s, %v", p.Value, err)
		}
	})
}

// A client that dies with locks delays the others by no more than 5 s.
func TestLocksOfADeadClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		life, die := context.WithCancel(ctx)
		dead, err := client.Begin(life)
		if err != nil {
			t.Fatal(err)
		}
		var all [][]byte
		for i := range 8 {
			all = append(all, fmt.Appendf(nil, "k%d", i))
			if _, err := dead.GetForUpdate(ctx, ks, all[i]); !errors.Is(err, kv.ErrNotFound) {
				t.Fatal(err)
			}
		}
		die()
		begun := time.Now()
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			for _, key := range all {
				if err := tx.Put(ks, key, []byte("new")); err != nil {
					return err
				}
			}
			return nil
		}); err != nil || time.Since(begun) > 5*time.Second {
			t.Error(err, time.Since(begun))
		}
		if _, err := dead.Commit(ctx); err != nil {
			t.Errorf("a transaction that has written nothing: %v", err)
		}
		// What it reads under no lock is what was written.
		if pairs, err := ks.BatchGet(ctx, all); err != nil ||
			slices.ContainsFunc(pairs, func(p kv.Pair) bool { return string(p.Value) != "new" }) {
			t.Error(pairs, err)
		}
	})
}

// A transaction of many keys appears as a whole.
func TestLargeTransaction(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(8))
		if err != nil {
			t.Fatal(err)
		}
		const n = 20_000
		at, err := client.Update(ctx, func(tx *kv.Txn) error {
			for i := range n {
				if err := tx.Put(ks, fmt.Appendf(nil, "key-%06d", i), []byte("value")); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := ks.Count(ctx); err != nil || got != n {
			t.Errorf("%d, %v", got, err)
		}
		if got, err := client.SnapshotAt(at.Prev()).Count(ctx, ks); err != nil || got != 0 {
			t.Errorf("before the commit: %d, %v", got, err)
		}
	})
}
