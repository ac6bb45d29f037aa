package kv_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// aged starts a cluster with a keyspace "k", and gives it and two clients that have nothing in
// common.
func aged(
	t *testing.T, options ...kv.KeyspaceOption,
) (cluster *kvtest.Cluster, holder, other *kv.Client) {
	t.Helper()
	cluster = kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
	holder, other = cluster.Client(t), cluster.Client(t)
	if _, err := holder.CreateKeyspace(t.Context(), "k", append(options, kv.Hash(4))...); err != nil {
		t.Fatal(err)
	}
	return cluster, holder, other
}

// putWithin writes a key, and waits for its lock for as long as limit.
func putWithin(t *testing.T, client *kv.Client, key string, limit time.Duration) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	_, err := client.Keyspace("k").Put(ctx, []byte(key), []byte("v"))
	return err
}

// The client of a transaction lives, and its application has forgotten the transaction: its locks
// go all the same.
func TestTheLocksOfAForgottenTransactionGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, holder, other := aged(t)
		tx, err := holder.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFor(t.Context(), tx, holder.Keyspace("k"), "a"); err != nil {
			t.Fatal(err)
		}
		if err := putWithin(t, other, "a", 30*time.Minute); err != nil {
			t.Fatalf("after 30 minutes: %v", err)
		}
		err = tx.Put(holder.Keyspace("k"), []byte("a"), []byte("late"))
		if !errors.Is(err, kv.ErrTransactionAborted) || !errors.Is(err, kv.ErrTransactionExpired) ||
			!strings.Contains(err.Error(), "no call had been made in it for longer than 2m0s") {
			t.Fatalf("put: %v", err)
		}
		if _, err := tx.Commit(t.Context()); !errors.Is(err, kv.ErrTransactionExpired) {
			t.Fatalf("commit: %v", err)
		}
	})
}

// The same in Update, whose locks are in a leader's memory only.
func TestTheLocksOfAForgottenUpdateGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, holder, other := aged(t)
		locked, written, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		long, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		attempts := 0
		go func() {
			_, err := holder.Update(long, func(tx *kv.Txn) error {
				if err := lockFor(long, tx, holder.Keyspace("k"), "a"); err != nil {
					return err
				}
				if attempts++; attempts == 1 {
					close(locked)
					<-written
				}
				return tx.Put(holder.Keyspace("k"), []byte("a"), []byte("mine"))
			})
			done <- err
		}()
		<-locked
		if err := putWithin(t, other, "a", 30*time.Minute); err != nil {
			t.Errorf("after 30 minutes: %v", err)
		}
		close(written)
		if err := <-done; err != nil || attempts != 2 {
			t.Fatalf("update: %v, after %d attempts", err, attempts)
		}
	})
}

// A transaction that goes on and on is aborted at last, however busy it is.
func TestTheLocksOfAnEndlessTransactionGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, holder, other := aged(t, kv.MaxTransactionAge(10*time.Minute))
		tx, err := holder.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := lockFor(t.Context(), tx, holder.Keyspace("k"), "a"); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- putWithin(t, other, "a", 20*time.Minute) }()
		for err == nil {
			select {
			case err = <-done:
				if err != nil {
					t.Fatalf("after 20 minutes: %v", err)
				}
				err = errDone
			case <-time.After(30 * time.Second):
				if failed := tx.Put(holder.Keyspace("k"), []byte("b"), nil); failed != nil &&
					!errors.Is(failed, kv.ErrTransactionAborted) {
					t.Fatalf("put: %v", failed)
				}
			}
		}
		// Whether it has heard of that already or not, it cannot commit.
		if err = tx.Put(holder.Keyspace("k"), []byte("b"), []byte("late")); err == nil {
			_, err = tx.Commit(t.Context())
		}
		if !errors.Is(err, kv.ErrTransactionExpired) ||
			!strings.Contains(err.Error(), "it had gone on for longer than 10m0s") {
			t.Fatalf("commit: %v", err)
		}
	})
}

var errDone = errors.New("done")
