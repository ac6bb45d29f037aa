package kv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// lockFor locks a key, whether it has a value or not.
func lockFor(ctx context.Context, tx *kv.Txn, ks *kv.Keyspace, key string) error {
	_, err := tx.GetForUpdate(ctx, ks, []byte(key))
	if errors.Is(err, kv.ErrNotFound) {
		return nil
	}
	return err
}

// sessions are clients that have nothing in common, each with a transaction, the oldest first.
func sessions(t *testing.T, cluster *kvtest.Cluster, n int) (clients []*kv.Client, all []*kv.Txn) {
	t.Helper()
	for range n {
		client := cluster.Client(t)
		tx, err := client.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clients, all = append(clients, client), append(all, tx)
		time.Sleep(time.Second) // more than their estimates of the time differ by
	}
	return clients, all
}

// Of two that want the same key the older one gets it at once, whichever had it, and the other one
// is told why.
func TestTheOlderSessionWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		if _, err := cluster.Client(t).CreateKeyspace(ctx, "k", kv.Hash(4)); err != nil {
			t.Fatal(err)
		}
		clients, all := sessions(t, cluster, 3)
		space := func(i int) *kv.Keyspace { return clients[i].Keyspace("k") }
		// The younger two have locks, and live.
		for i, key := range []string{1: "a", 2: "b"} {
			if key == "" {
				continue
			}
			if err := lockFor(ctx, all[i], space(i), key); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		begun := time.Now()
		if err := lockFor(ctx, all[0], space(0), "a"); err != nil ||
			time.Since(begun) > 100*time.Millisecond {
			t.Fatalf("the older one got the lock after %v: %v", time.Since(begun), err)
		}
		// The younger one hears of it with its next heartbeat, and says so from then on.
		time.Sleep(2 * time.Second)
		err := all[1].Put(space(1), []byte("c"), []byte("mine"))
		if !errors.Is(err, kv.ErrTransactionAborted) || !strings.Contains(err.Error(),
			`put "c" in keyspace "k": the transaction was aborted, because an older one (`+
				all[0].ID()+`) wanted "a", which it had locked; `+
				`run the transaction again (attempt 1 of the transaction`) || over(err) != "a of k" {
			t.Errorf("put: %v", err)
		}
		if _, err := all[1].Commit(ctx); !errors.Is(err, kv.ErrTransactionAborted) ||
			!errors.Is(err, kv.ErrWounded) || over(err) != "a of k" {
			t.Errorf("commit: %v", err)
		}
		// It runs again and waits for the older one, which is as it should be, for as long as that
		// takes; but it is as old as it was: older than the third.
		again, err := all[1].Again(ctx)
		if err != nil {
			t.Fatal(err)
		}
		begun = time.Now()
		if err := lockFor(ctx, again, space(1), "b"); err != nil ||
			time.Since(begun) > 100*time.Millisecond {
			t.Fatalf("run again it got the lock after %v: %v", time.Since(begun), err)
		}
		got := make(chan error, 1)
		long, cancel := context.WithTimeout(ctx, 10*time.Minute)
		defer cancel()
		go func() { got <- lockFor(long, again, space(1), "a") }()
		time.Sleep(50 * time.Second)
		select {
		case err := <-got:
			t.Fatalf("it did not wait for the older one: %v", err)
		default:
		}
		begun = time.Now()
		if err := all[0].Put(space(0), []byte("a"), []byte("first")); err != nil {
			t.Fatal(err)
		}
		if _, err := all[0].Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > time.Second {
			t.Fatalf("the younger one got the lock after %v: %v", time.Since(begun), err)
		}
		if err := again.Put(space(1), []byte("a"), []byte("second")); err != nil {
			t.Fatal(err)
		}
		if _, err := again.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if p, err := space(2).Get(ctx, []byte("a")); err != nil || string(p.Value) != "second" {
			t.Errorf("%s, %v", p.Value, err)
		}
		if _, err := all[2].Commit(ctx); err != nil {
			t.Errorf("one that has written nothing: %v", err)
		}
	})
}

// over is the key that an error names, and its keyspace.
func over(err error) string {
	var e *kv.Error
	if !errors.As(err, &e) {
		return ""
	}
	return string(e.Key) + " of " + e.Keyspace
}

// A transaction that was aborted for an older one learns over which key, wherever that lies and
// whichever of its requests is refused.
func TestTheWoundedHearsOverWhichKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		for name, partitions := range map[string]kv.KeyspaceOption{"hashed": kv.Hash(4),
			"ranged": kv.Range()} {
			if _, err := cluster.Client(t).CreateKeyspace(ctx, name, partitions); err != nil {
				t.Fatal(err)
			}
		}
		long := strings.Repeat("k", 1025)
		for _, c := range []struct{ first, second, want string }{
			{"a", "b", "b of ranged"},
			{"a", long[1:], long[1:] + " of ranged"},
			{"a", long, " of "},      // it is too long to be told
			{"", "b", "b of ranged"}, // the only lock, which is the anchor
		} {
			clients, all := sessions(t, cluster, 2)
			// The aborted transaction has its anchor in one keyspace, and is in the way in another.
			if c.first != "" {
				if err := lockFor(ctx, all[1], clients[1].Keyspace("hashed"), c.first); err != nil {
					t.Fatal(err)
				}
			}
			if err := lockFor(ctx, all[1], clients[1].Keyspace("ranged"), c.second); err != nil {
				t.Fatal(err)
			}
			if err := all[1].Put(clients[1].Keyspace("ranged"), []byte("z"), nil); err != nil {
				t.Fatal(err)
			}
			if err := lockFor(ctx, all[0], clients[0].Keyspace("ranged"), c.second); err != nil {
				t.Fatal(err)
			}
			// Not with a heartbeat, but with its own commit.
			_, err := all[1].Commit(ctx)
			if !errors.Is(err, kv.ErrWounded) || over(err) != c.want ||
				strings.Contains(err.Error(), "a key that it had locked") != (len(c.second) > 1024) {
				t.Errorf("%.10q and %.10q: the commit ended with: %.300v", c.first, c.second, err)
			}
			all[0].Rollback()
		}
	})
}

// A commit that waits in vain for a lock names the key with its keyspace.
func TestACommitThatWaitsInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		holders, all := sessions(t, cluster, 1)
		if err := lockFor(ctx, all[0], holders[0].Keyspace("k"), "a"); err != nil {
			t.Fatal(err)
		}
		for _, others := range []string{"a", "ab", "abcdefgh"} { // in one phase, and in two
			bounded, cancel := context.WithTimeout(ctx, 2*time.Second)
			_, err = client.Update(bounded, func(tx *kv.Txn) error {
				for _, key := range others {
					if err := tx.Put(ks, []byte{byte(key)}, nil); err != nil {
						return err
					}
				}
				return nil
			})
			cancel()
			var e *kv.Error
			if !errors.As(err, &e) || !errors.Is(err, kv.ErrConflict) || e.Keyspace != "k" ||
				string(e.Key) != "a" || e.Transaction != all[0].ID() ||
				e.Attempts != 1 || !strings.Contains(err.Error(), "gave up after 1 attempt; the last: ") {
				t.Errorf("%s: %v (%+v)", others, err, e)
			}
		}
		all[0].Rollback()
	})
}

// What ends a function of Update in vain says in which attempt that was, also if it is no attempt's
// end; and so do the errors of callers that begin attempts themselves.
func TestErrorsCountAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(ctx, "k", kv.Hash(4))
		if err != nil {
			t.Fatal(err)
		}
		holders, all := sessions(t, cluster, 1)
		defer all[0].Rollback()
		if err := lockFor(ctx, all[0], holders[0].Keyspace("k"), "a"); err != nil {
			t.Fatal(err)
		}
		// conflict has another transaction change what a transaction has read.
		conflict := func(tx *kv.Txn) error {
			if _, err := tx.Get(ctx, ks, []byte("b")); err != nil && !errors.Is(err, kv.ErrNotFound) {
				return err
			}
			if _, err := ks.Put(ctx, []byte("b"), nil); err != nil {
				return err
			}
			return tx.Put(ks, []byte("c"), nil)
		}
		check := func(err error, attempts int, key, words string) {
			t.Helper()
			var e *kv.Error
			if !errors.As(err, &e) || !errors.Is(err, kv.ErrConflict) || e.Attempts != attempts ||
				string(e.Key) != key || e.Keyspace != "k" || !strings.Contains(err.Error(), words) {
				t.Errorf("%v (%+v); want %d attempts, the key %s and %q", err, e, attempts, key, words)
			}
		}
		update := func(f func(ctx context.Context, tx *kv.Txn, run int) error) (runs int, err error) {
			bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			_, err = client.Update(bounded, func(tx *kv.Txn) error {
				runs++
				return f(bounded, tx, runs)
			})
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("not in vain: %v", err)
			}
			return runs, err
		}
		// It waits in vain.
		_, err = update(func(ctx context.Context, tx *kv.Txn, run int) error {
			if run < 3 {
				return conflict(tx)
			}
			return lockFor(ctx, tx, ks, "a")
		})
		check(err, 3, "a", "is locked by transaction "+all[0].ID())
		check(err, 3, "a", "(attempt 3 of the transaction, partition ")
		// There is always a transaction in the way. It finds out before it commits: if the time
		// were up in the middle of a commit, the outcome would be unknown.
		runs, err := update(func(_ context.Context, tx *kv.Txn, _ int) error {
			if err := conflict(tx); err != nil {
				return err
			}
			return lockFor(ctx, tx, ks, "b")
		})
		check(err, runs, "b", "; give it more time, or lock the key with GetForUpdate")
		// The time is up in the middle of an attempt.
		runs, err = update(func(ctx context.Context, tx *kv.Txn, run int) error {
			if run < 3 {
				return conflict(tx)
			}
			<-ctx.Done()
			_, err := tx.Get(ctx, ks, []byte("d"))
			return err
		})
		check(err, 3, "b", "gave up in attempt 3; the one before: the key was changed after the "+
			"transaction had read it")
		if runs != 3 {
			t.Errorf("%d runs", runs)
		}

		tx, err := client.Begin(ctx)
		for attempt := 1; err == nil && attempt <= 2; attempt++ {
			if err := conflict(tx); err != nil {
				t.Fatal(err)
			}
			_, err = tx.Commit(ctx)
			check(err, attempt, "b", "; run the transaction again (attempt ")
			tx, err = tx.Again(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		tx.Rollback()
	})
}

// A client that waits for a lock for long is not taken for lost: nothing is cut off, and of every
// write it is known that it did not run, and which transaction was in the way.
func TestALongWaitIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		// The holder does nothing for as long as all the others wait.
		if _, err := cluster.Client(t).CreateKeyspace(ctx, "k", kv.Hash(4),
			kv.MaxTransactionIdle(time.Hour)); err != nil {
			t.Fatal(err)
		}
		clients, all := sessions(t, cluster, 1)
		if err := lockFor(ctx, all[0], clients[0].Keyspace("k"), "a"); err != nil {
			t.Fatal(err)
		}
		registry := prometheus.NewRegistry()
		client := cluster.Client(t, kvprom.Metrics(registry))
		ks := client.Keyspace("k")
		for name, write := range map[string]func(context.Context) error{
			"commit": func(ctx context.Context) error {
				_, err := client.Update(ctx, func(tx *kv.Txn) error { return tx.Put(ks, []byte("a"), nil) })
				return err
			},
			"put": func(ctx context.Context) error {
				_, err := ks.Put(ctx, []byte("a"), nil)
				return err
			},
			"delete": func(ctx context.Context) error {
				_, err := ks.Delete(ctx, []byte("a"))
				return err
			},
			"compare-and-swap": func(ctx context.Context) error {
				_, err := ks.CompareAndSwap(ctx, []byte("a"), kv.ExpectAbsent(), kv.Set(nil))
				return err
			},
			"batch": func(ctx context.Context) error {
				b := ks.Batch()
				b.Put([]byte("a"), nil)
				_, err := b.Commit(ctx)
				return err
			},
			"delete-range": func(ctx context.Context) error {
				_, err := ks.DeleteRange(ctx, kv.All())
				return err
			},
		} {
			bounded, cancel := context.WithTimeout(ctx, 50*time.Second)
			begun := time.Now()
			err := write(bounded)
			var e *kv.Error
			if !errors.As(err, &e) || !errors.Is(err, kv.ErrConflict) ||
				errors.Is(err, kv.ErrOutcomeUnknown) || time.Since(begun) < 49*time.Second ||
				string(e.Key) != "a" || e.Transaction != all[0].ID() ||
				!strings.Contains(err.Error(), `key "a" is locked by transaction `+all[0].ID()) {
				t.Errorf("%s, after %v: %v (%+v)", name, time.Since(begun), err, e)
			}
			cancel()
		}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				for _, l := range m.GetLabel() {
					if n := m.GetCounter().GetValue(); l.GetValue() == "connection" && n > 0 {
						t.Errorf("%s: %v requests were sent again because of a connection", f.GetName(), n)
					}
				}
			}
		}
		all[0].Rollback()
	})
}

// A transaction that has run again has younger ones that sit on their locks aborted, however many
// keys it reads and writes, and however it reads them.
func TestWhoRunsAgainDoesNotYield(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		if _, err := cluster.Client(t).CreateKeyspace(ctx, "k", kv.Hash(4)); err != nil {
			t.Fatal(err)
		}
		older, younger := cluster.Client(t), cluster.Client(t)
		ks := older.Keyspace("k")
		var many [][]byte
		// More than an attempt locks because the one before has read and written them.
		for i := range 150 {
			many = append(many, []byte{byte(i)})
		}
		transfer := func(tx *kv.Txn, keys [][]byte) error {
			if _, err := tx.BatchGet(ctx, ks, keys); err != nil {
				return err
			}
			for _, key := range keys {
				if err := tx.Put(ks, key, []byte("older")); err != nil {
					return err
				}
			}
			return nil
		}
		// sit has a younger transaction lock a key and do nothing more.
		sit := func(key []byte) *kv.Txn {
			time.Sleep(time.Second)
			tx, err := younger.Begin(ctx)
			if err == nil {
				err = lockFor(ctx, tx, younger.Keyspace("k"), string(key))
			}
			if err != nil {
				t.Fatal(err)
			}
			return tx
		}
		update := func(keys [][]byte, sits func(attempt int) bool) {
			attempts := 0
			bounded, cancel := context.WithTimeout(ctx, 20*time.Second)
			defer cancel()
			_, err := older.Update(bounded, func(tx *kv.Txn) error {
				if attempts++; sits(attempts) {
					defer sit(keys[len(keys)/2+attempts])
				}
				return transfer(tx, keys)
			})
			if err != nil || attempts > 2 {
				t.Errorf("update of %d keys: %d attempts: %v", len(keys), attempts, err)
			}
		}
		update(many, func(int) bool { return true })
		update(many[:40], func(attempt int) bool { return attempt == 1 }) // the second locks them all

		tx, err := older.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		sitting := sit(many[1])
		for attempt := 1; ; attempt++ {
			if err = transfer(tx, many[:5]); err == nil {
				_, err = tx.Commit(ctx)
			}
			if err == nil || attempt == 2 {
				break
			}
			if !errors.Is(err, kv.ErrConflict) || !strings.Contains(err.Error(),
				"the key was changed after the transaction had read it, or is about to be, by "+
					"another transaction ("+sitting.ID()+"); run the transaction again") {
				t.Errorf("attempt %d: %v", attempt, err)
			}
			if tx, err = tx.Again(ctx); err != nil {
				t.Fatal(err)
			}
		}
		if err != nil {
			t.Errorf("begin and again: %v", err)
		}
		sitting.Rollback()
	})
}
