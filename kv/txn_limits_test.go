package kv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

// A transaction that tries again and again, for longer than any attempt may take, still goes before
// those that came later, and is never refused for good.
func TestATransactionThatTriesForLongKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		_, holder, other := aged(t, kv.MaxTransactionAge(time.Minute),
			kv.MaxTransactionIdle(time.Minute))
		tx, err := holder.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 8 { // of 40 seconds each
			if err := lockFor(ctx, tx, holder.Keyspace("k"), "a"); err != nil {
				t.Fatalf("in attempt after %s: %v", tx.ID(), err)
			}
			time.Sleep(40 * time.Second)
			if end, err := admin.New(other).AbortTransaction(ctx, tx.ID()); err != nil || end.Committed {
				t.Fatalf("%+v, %v", end, err)
			}
			if tx, err = tx.Again(ctx); err != nil {
				t.Fatal(err)
			}
		}
		younger, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFor(ctx, younger, other.Keyspace("k"), "b"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30 * time.Second)
		before := time.Now()
		if err := lockFor(ctx, tx, holder.Keyspace("k"), "b"); err != nil ||
			time.Since(before) > time.Second {
			t.Fatalf("the older one got the lock after %s: %v", time.Since(before), err)
		}
		if err := tx.Put(holder.Keyspace("k"), []byte("b"), []byte("mine")); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		younger.Rollback()
	})
}

// Of the keyspaces in which a transaction holds locks the strictest counts, whichever of them keeps
// its record.
func TestTheStrictestKeyspaceCounts(t *testing.T) {
	for _, first := range []string{"k", "strict"} {
		t.Run(first, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx := t.Context()
				_, holder, other := aged(t)
				if _, err := holder.CreateKeyspace(ctx, "strict", kv.Range(),
					kv.MaxTransactionIdle(10*time.Second)); err != nil {
					t.Fatal(err)
				}
				tx, err := holder.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				second := map[string]string{"k": "strict", "strict": "k"}[first]
				for _, name := range []string{first, second} {
					if err := lockFor(ctx, tx, holder.Keyspace(name), "a"); err != nil {
						t.Fatal(err)
					}
				}
				before := time.Now()
				if err := putWithin(t, other, "a", time.Minute); err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(before); waited < 9*time.Second || waited > 16*time.Second {
					t.Errorf("the lock went after %s", waited)
				}
				tx.Rollback()
			})
		})
	}
}

// A client that waits, or goes through rows slowly, is not idle; and what is known of it is right.
func TestABusyTransactionIsNotIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		_, holder, other := aged(t, kv.MaxTransactionIdle(10*time.Second))
		ks := holder.Keyspace("k")
		for key := range byte(6) {
			if _, err := ks.Put(ctx, []byte{'r', key}, nil); err != nil {
				t.Fatal(err)
			}
		}
		older, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFor(ctx, older, other.Keyspace("k"), "busy"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		tx, err := holder.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFor(ctx, tx, ks, "a"); err != nil {
			t.Fatal(err)
		}
		for _, err := range tx.Scan(ctx, ks, kv.Prefix([]byte("r"))) {
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(8 * time.Second)
			if _, err := older.Get(ctx, other.Keyspace("k"), []byte("busy")); !errors.Is(err,
				kv.ErrNotFound) {
				t.Fatal(err)
			}
		}
		waiting := make(chan error, 1)
		go func() { waiting <- lockFor(ctx, tx, ks, "busy") }()
		for range 3 {
			time.Sleep(8 * time.Second)
			if _, err := older.Get(ctx, other.Keyspace("k"), []byte("busy")); !errors.Is(err,
				kv.ErrNotFound) {
				t.Fatal(err)
			}
		}
		older.Rollback()
		if err := <-waiting; err != nil {
			t.Fatal(err)
		}
		if err := tx.Put(ks, []byte("a"), nil); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	})
}

// A limit that is changed counts for what is open already.
func TestAlteredLimitsCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		_, holder, other := aged(t)
		tx, err := holder.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFor(ctx, tx, holder.Keyspace("k"), "a"); err != nil {
			t.Fatal(err)
		}
		if err := other.AlterKeyspace(ctx, "k", kv.MaxTransactionAge(5*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := putWithin(t, other, "a", 20*time.Second); err != nil {
			t.Fatal(err)
		}
		info, err := admin.New(other).Keyspace(ctx, "k")
		if err != nil || info.MaxTransactionAge != 5*time.Second ||
			info.MaxTransactionIdle != 2*time.Minute {
			t.Errorf("%+v, %v", info, err)
		}
		for name, changes := range map[string][]kv.AlterOption{
			"k": {}, "other": {kv.MaxTransactionIdle(time.Minute)},
			"": {kv.MaxTransactionAge(time.Millisecond)},
		} {
			if err := other.AlterKeyspace(ctx, name, changes...); !errors.Is(err,
				kv.ErrInvalidArgument) && !errors.Is(err, kv.ErrKeyspaceNotFound) {
				t.Errorf("%q %+v: %v", name, changes, err)
			}
		}
		tx.Rollback()
	})
}

// Open transactions are listed once each, with what is known of them, and end when a person says
// so.
func TestTransactionsAreListedAndAborted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		_, holder, other := aged(t)
		tx, err := holder.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			if err := lockFor(ctx, tx, holder.Keyspace("k"), key); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Second)
		done := make(chan error, 1)
		go func() { done <- putWithin(t, other, "a", time.Minute) }()
		time.Sleep(time.Second)
		all, more, err := admin.New(other).Transactions(ctx, "", 10)
		if err != nil || more || len(all) != 1 {
			t.Fatalf("%+v, %v, %v", all, more, err)
		}
		x := all[0]
		if x.ID != tx.ID() || x.Age < 21*time.Second || x.Age > 22*time.Second ||
			x.Idle < 18*time.Second || x.Idle > 22*time.Second ||
			x.Keyspace != "k" || x.Partition == 0 || x.State != "pending" || x.Locks != 8 ||
			x.Partitions < 2 || x.KeyKeyspace != "k" ||
			x.ClientAddress == "" || x.Client == 0 || len(x.Waiters) != 1 ||
			string(x.Waiters[0].Key) != "a" || !x.Waiters[0].Write {
			t.Errorf("%+v", x)
		}
		if all, _, err := admin.New(other).Transactions(ctx, "k", 10); err != nil || len(all) != 1 ||
			all[0].Locks != 8 {
			t.Errorf("of its keyspace: %+v, %v", all, err)
		}
		end, err := admin.New(other).AbortTransaction(ctx, x.ID)
		if err != nil || end.Committed || end.Reason != "it was asked for" {
			t.Fatalf("%+v, %v", end, err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if all, _, err := admin.New(other).Transactions(ctx, "", 10); err != nil || len(all) > 0 {
			t.Errorf("afterwards: %+v, %v", all, err)
		}
		again, err := admin.New(other).AbortTransaction(ctx, x.ID)
		if err != nil || again.Committed || !again.Already || again.Reason != "it was asked for" {
			t.Errorf("again: %+v, %v", again, err)
		}
		none := "00" + x.ID[2:]
		_, err = admin.New(other).AbortTransaction(ctx, none)
		if !errors.Is(err, kv.ErrNotFound) ||
			!strings.Contains(err.Error(),
				"it has ended, or has locked nothing yet; there is nothing to abort") {
			t.Errorf("one that there is not: %v", err)
		}
		if err = tx.Put(holder.Keyspace("k"), []byte("b"), nil); err == nil {
			_, err = tx.Commit(ctx)
		}
		if !errors.Is(err, kv.ErrTransactionAborted) {
			t.Errorf("its client: %v", err)
		}
		for _, id := range []string{"", "7", x.ID + "00", "zz" + x.ID[2:]} {
			if _, err := admin.New(other).AbortTransaction(ctx, id); !errors.Is(err,
				kv.ErrInvalidArgument) {
				t.Errorf("%q: %v", id, err)
			}
		}
	})
}

// Of a commit and an abort that race one happens, and both sides say the same of it.
func TestACommitAndAnAbortAgree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		_, holder, other := aged(t)
		ks := holder.Keyspace("k")
		outcomes := make(map[string]int)
		for round := range 60 {
			tx, err := holder.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			locked := []string{"a"}
			if round%2 == 1 {
				locked = []string{"a", "b", "c", "d"} // in several partitions
			}
			for _, key := range locked {
				if err := lockFor(ctx, tx, ks, key); err != nil {
					t.Fatal(err)
				}
				if err := tx.Put(ks, []byte(key), []byte{byte(round)}); err != nil {
					t.Fatal(err)
				}
			}
			if round%3 == 0 {
				time.Sleep(1500 * time.Millisecond) // it has a record
			}
			type end struct {
				admin.TransactionEnd
				err error
			}
			ended := make(chan end, 1)
			go func() {
				got, err := admin.New(other).AbortTransaction(ctx, tx.ID())
				ended <- end{got, err}
			}()
			time.Sleep(time.Duration(round/2) * 400 * time.Microsecond)
			at, err := tx.Commit(ctx)
			got := <-ended
			switch {
			case got.err != nil && !errors.Is(got.err, kv.ErrNotFound):
				t.Fatalf("round %d: %v", round, got.err)
			case err == nil && (got.err == nil && (!got.Committed || got.At != at)):
				t.Fatalf("round %d: committed at %s, and the other one was told %+v", round, at, got)
			case err != nil && (!errors.Is(err, kv.ErrTransactionAborted) || got.err != nil ||
				got.Committed):
				t.Fatalf("round %d: %v, and the other one was told %+v", round, err, got)
			}
			for _, key := range locked {
				pair, gone := ks.Get(ctx, []byte(key))
				if mine := gone == nil && pair.Value[0] == byte(round); mine != (err == nil) {
					t.Fatalf("round %d: %v, and the value of %s is %v, %v", round, err, key, pair.Value, gone)
				}
			}
			outcomes[map[bool]string{true: "committed", false: "aborted"}[err == nil]]++
		}
		if outcomes["committed"] == 0 || outcomes["aborted"] == 0 {
			t.Errorf("%v: the race was none", outcomes)
		}
	})
}

// An Update that is aborted by a person runs again.
func TestAnAbortedUpdateRunsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, holder, other := aged(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		attempts := 0
		_, err := holder.Update(ctx, func(tx *kv.Txn) error {
			if err := lockFor(ctx, tx, holder.Keyspace("k"), "a"); err != nil {
				return err
			}
			if attempts++; attempts == 1 {
				if end, err := admin.New(other).AbortTransaction(ctx, tx.ID()); err != nil ||
					end.Committed {
					t.Errorf("%+v, %v", end, err)
				}
			}
			return tx.Put(holder.Keyspace("k"), []byte("a"), nil)
		})
		if err != nil || attempts != 2 {
			t.Errorf("%v after %d attempts", err, attempts)
		}
	})
}
