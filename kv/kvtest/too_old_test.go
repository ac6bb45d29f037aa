package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestTransactionsOlderThanTheWindow: what began longer ago than versions are kept is refused,
// whatever it has done by then and wants to do, and is told that this is why. It is not run again,
// and nothing of it is left.
func TestTransactionsOlderThanTheWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency, Configure: func(_ int,
			sc *embedded.ServerConfig) {
			sc.GCInterval = time.Second
		}})
		client := c.Client(t)
		ks := create(t, client, "here", kv.Hash(2), kv.GCWindow(2*time.Second))
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		put(t, ks, "k", "old")
		// age lets time go by in which versions become garbage and are collected.
		age := func() {
			for range 20 {
				for i := range 10 {
					put(t, ks, fmt.Sprintf("other-%d", i), "v")
				}
				time.Sleep(time.Second)
			}
		}
		read := func(tx *kv.Txn) error {
			_, err := tx.Get(ctx, ks, []byte("k"))
			return err
		}
		lock := func(tx *kv.Txn) error {
			_, err := tx.GetForUpdate(ctx, ks, []byte("k"))
			return err
		}
		write := func(keys ...string) func(tx *kv.Txn) error {
			return func(tx *kv.Txn) error {
				for _, k := range keys {
					if err := tx.Put(ks, []byte(k), []byte("new")); err != nil {
						return err
					}
				}
				return nil
			}
		}
		nothing := func(*kv.Txn) error { return nil }
		for name, test := range map[string]struct{ early, late func(tx *kv.Txn) error }{
			"reads, and reads": {read,
				func(tx *kv.Txn) error { _, err := tx.Count(ctx, ks); return err }},
			"reads, and writes":              {read, write("k")},
			"writes to one partition":        {write("k"), nothing},
			"writes to several":              {write("k", "k1", "k2", "k3", "k4"), nothing},
			"locks, and writes":              {lock, write("k")},
			"locks, and writes to several":   {lock, write("k", "k1", "k2", "k3", "k4")},
			"begins, and writes to several":  {nothing, write("k", "k1", "k2", "k3", "k4")},
			"begins, and locks what is free": {nothing, lock},
		} {
			runs := 0
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				runs++
				if err := test.early(tx); err != nil {
					return err
				}
				age()
				return test.late(tx)
			})
			if !errors.Is(err, kv.ErrTransactionTooOld) || runs != 1 ||
				!strings.Contains(err.Error(), "longer GC window") || strings.Contains(err.Error(),
				"later moment") {
				t.Errorf("%s: %v, after %d runs", name, err, runs)
			}
			began := time.Now()
			if _, err := ks.Put(ctx, []byte("k"), []byte("old")); err != nil ||
				time.Since(began) > cleanedUp {
				t.Errorf("%s: another one wrote the key after %v: %v", name, time.Since(began), err)
			}
			if n, err := ks.Count(ctx, kv.Prefix([]byte("k"))); err != nil || n != 1 {
				t.Errorf("%s: %d keys, %v", name, n, err)
			}
		}
		runs := 0
		err := client.View(ctx, func(s *kv.Snapshot) error {
			runs++
			if _, err := s.Get(ctx, ks, []byte("k")); err != nil {
				return err
			}
			age()
			_, err := s.Count(ctx, ks)
			return err
		})
		if !errors.Is(err, kv.ErrTransactionTooOld) || runs != 1 {
			t.Errorf("a view: %v, after %d runs", err, runs)
		}
	})
}

// TestAlteredGCWindow: a shorter GC window removes what only a longer one kept, and a longer one
// keeps from then on what it says.
func TestAlteredGCWindow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency, Configure: func(_ int,
			sc *embedded.ServerConfig) {
			sc.GCInterval = time.Second
		}})
		client := c.Client(t)
		ks := create(t, client, "here", kv.Range(), kv.GCWindow(time.Hour))
		ctx := t.Context()
		readable := func(at kv.Timestamp) error {
			_, err := ks.Get(ctx, []byte("k"), kv.At(at))
			return err
		}
		// rewrite overwrites the key for 30 s, and returns when the first value was the latest one.
		rewrite := func() kv.Timestamp {
			put(t, ks, "k", "old")
			at := client.Timestamp()
			for range 30 {
				put(t, ks, "k", "new")
				time.Sleep(time.Second)
			}
			return at
		}
		before := rewrite()
		if err := readable(before); err != nil {
			t.Errorf("within the window: %v", err)
		}
		if err := client.AlterKeyspace(ctx, "here", kv.GCWindow(2*time.Second)); err != nil {
			t.Fatal(err)
		}
		if err := readable(rewrite()); !errors.Is(err, kv.ErrTimestampTooOld) {
			t.Errorf("outside the shorter window: %v", err)
		}
		if err := client.AlterKeyspace(ctx, "here", kv.GCWindow(time.Hour)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second) // the nodes learn of it
		if err := readable(rewrite()); err != nil {
			t.Errorf("within the longer window: %v", err)
		}
		if err := client.AlterKeyspace(ctx, "here", kv.GCWindow(200*366*24*time.Hour)); !errors.Is(err,
			kv.ErrInvalidArgument) {
			t.Errorf("200 years: %v", err)
		}
	})
}
