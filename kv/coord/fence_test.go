package coord_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// withKeyspace runs a test with a cluster of Tidemark in virtual time.
func withKeyspace(t *testing.T, test func(t *testing.T, cluster *kvtest.Cluster, client *kv.Client,
	ks *kv.Keyspace)) {
	synctest.Test(t, func(t *testing.T) {
		cluster := kvtest.Start(t, kvtest.Options{Latency: time.Millisecond})
		client := cluster.Client(t)
		ks, err := client.CreateKeyspace(t.Context(), "k", kv.Hash(2))
		if err != nil {
			t.Fatal(err)
		}
		test(t, cluster, client, ks)
	})
}

// A holder with a lower token than was seen cannot write, also if it began before the other one.
func TestFence(t *testing.T) {
	withKeyspace(t, func(t *testing.T, _ *kvtest.Cluster, client *kv.Client, ks *kv.Keyspace) {
		ctx := t.Context()
		fence := coord.Fence{Keyspace: ks, Name: "stock"}
		write := func(token coord.Token, value string) error {
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				if err := fence.Check(ctx, tx, token); err != nil {
					return err
				}
				return tx.Put(ks, []byte("a"), []byte(value))
			})
			return err
		}
		for _, step := range []struct {
			token  coord.Token
			fenced bool
		}{{5, false}, {4, true}, {7, false}, {6, true}, {7, false}} {
			err := write(step.token, "x")
			if errors.Is(err, coord.ErrFenced) != step.fenced || (err == nil) == step.fenced {
				t.Errorf("token %d: %v", step.token, err)
			}
			// A lower token may also come of a service that was restored.
			if step.fenced && !(strings.Contains(err.Error(), "restored from a snapshot") &&
				strings.Contains(err.Error(), `delete the key "coord.fence/stock" of keyspace k`)) {
				t.Errorf("token %d: the error does not say what to do: %v", step.token, err)
			}
		}
		// It has checked, and commits when the next holder has been there.
		tx, err := client.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(fence.Check(ctx, tx, 7),
			tx.Put(ks, []byte("a"), []byte("late"))); err != nil {
			t.Fatal(err)
		}
		if err := write(8, "8"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Commit(ctx); !errors.Is(err, kv.ErrConflict) {
			t.Errorf("the former holder's commit: %v", err)
		}
		if p, err := ks.Get(ctx, []byte("a")); err != nil || string(p.Value) != "8" {
			t.Errorf("%s, %v", p.Value, err)
		}
		for _, bad := range []coord.Fence{{Keyspace: ks}, {Name: "x"}} {
			if err := bad.Check(ctx, nil, 1); !errors.Is(err, coord.ErrInvalidArgument) {
				t.Error(err)
			}
		}
		if err := fence.Check(ctx, nil, 0); !errors.Is(err, coord.ErrInvalidArgument) {
			t.Error(err)
		}
	})
}

// One owns a key at a time; it keeps it for as long as it wants, and another one can have it when
// it is released.
func TestOwn(t *testing.T) {
	withKeyspace(t, func(t *testing.T, _ *kvtest.Cluster, client *kv.Client, ks *kv.Keyspace) {
		ctx, key := t.Context(), []byte("shard/7")
		first, err := coord.Own(ctx, ks, key, "a", coord.OwnTTL(6*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // virtual
		if _, err := coord.Own(ctx, ks, key, "b"); !errors.Is(err, coord.ErrOwned) {
			t.Errorf("owning what is owned: %v", err)
		}
		if err := errors.Join(first.Err(), first.Renew(ctx)); err != nil {
			t.Error(err)
		}
		check := func(o *coord.Ownership) error {
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				return errors.Join(o.Check(ctx, tx), tx.Put(ks, []byte("a"), nil))
			})
			return err
		}
		if err := check(first); err != nil {
			t.Error(err)
		}
		if err := first.Release(first.Held()); err != nil {
			t.Error(err)
		}
		second, err := coord.Own(ctx, ks, key, "b")
		if err != nil {
			t.Fatal(err)
		}
		if err := check(first); !errors.Is(err, coord.ErrLost) {
			t.Errorf("the former owner writes: %v", err)
		}
		if !first.Since().Less(second.Since()) {
			t.Errorf("%v, then %v", first.Since(), second.Since())
		}
		if err := first.Release(ctx); !errors.Is(err, coord.ErrReleased) {
			t.Errorf("released again: %v", err)
		}
		if _, err := ks.Delete(ctx, key); err != nil {
			t.Fatal(err)
		}
		if err := second.Renew(ctx); !errors.Is(err, coord.ErrLost) {
			t.Errorf("renewing what was deleted: %v", err)
		}
		<-second.Held().Done()
		if err := second.Release(ctx); !errors.Is(err, coord.ErrLost) {
			t.Errorf("releasing what was lost: %v", err)
		}
		if _, err := coord.Own(ctx, ks, key, "b", coord.OwnTTL(time.Second)); !errors.Is(err,
			coord.ErrInvalidArgument) {
			t.Error(err)
		}
	})
}

// An owner that is cut off knows that it has lost the key before another one owns it.
func TestOwnerIsCutOff(t *testing.T) {
	withKeyspace(t, func(t *testing.T, cluster *kvtest.Cluster, client *kv.Client, ks *kv.Keyspace) {
		ctx, key := t.Context(), []byte("shard/7")
		cut := cluster.Client(t)
		first, err := coord.Own(ctx, cut.Keyspace("k"), key, "a", coord.OwnTTL(6*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		cluster.Network().Isolate("client-2", memnet.Stall)
		var second *coord.Ownership
		for {
			if second, err = coord.Own(ctx, ks, key, "b"); err == nil {
				break
			}
			if !errors.Is(err, coord.ErrOwned) {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond) // virtual
		}
		if first.Err() == nil || context.Cause(first.Held()) == nil {
			t.Error("two own the key")
		}
		if err := second.Release(ctx); err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := first.Release(ended); !errors.Is(err, coord.ErrLost) {
			t.Error(err)
		}
	})
}
