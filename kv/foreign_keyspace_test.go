package kv

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
)

// A transaction or snapshot neither reads nor writes when it is given the keyspace of another
// client, and goes on with its own.
func TestKeyspacesOfOtherClientsAreRefused(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		elsewhere := newFakeCluster(t, 3)
		defer elsewhere.Close()
		ctx := t.Context()
		key := []byte("a")
		var clients []*Client
		for value, cluster := range map[string]*fakeCluster{"here": c, "there": elsewhere} {
			cluster.AddKeyspace("hash", 4)
			client := cluster.open()
			defer client.Close()
			must[Timestamp](t)(client.Keyspace("hash").Put(ctx, key, []byte(value)))
			clients = append(clients, client)
		}
		twin := c.open()
		defer twin.Close()
		for _, client := range clients {
			for _, other := range append(clients, twin) {
				if other == client {
					continue
				}
				own, foreign := client.Keyspace("hash"), other.Keyspace("hash")
				refused := func(what string, err error) {
					t.Helper()
					if !errors.Is(err, ErrInvalidArgument) ||
						!strings.Contains(err.Error(), "belongs to another client") {
						t.Errorf("%s: %v", what, err)
					}
				}
				before, err := own.Get(ctx, key)
				if err != nil {
					t.Fatal(err)
				}
				tx, err := client.Begin(ctx)
				if err != nil {
					t.Fatal(err)
				}
				_, err = tx.GetForUpdate(ctx, foreign, key)
				refused("get-for-update", err)
				_, err = tx.CompareAndSwap(ctx, foreign, key, ExpectAbsent(), Delete())
				refused("compare-and-swap", err)
				_, err = tx.DeleteRange(ctx, foreign, All())
				refused("delete-range", err)
				refused("put", tx.Put(foreign, key, nil))
				refused("delete", tx.Delete(foreign, key))
				readers := map[string]interface {
					Get(context.Context, *Keyspace, []byte) (Pair, error)
					BatchGet(context.Context, *Keyspace, [][]byte) ([]Pair, error)
					Count(context.Context, *Keyspace, ...CountOption) (uint64, error)
				}{"begin": tx, "past": client.SnapshotAt(before.Version)}
				read := func(s *Snapshot) error {
					readers["view"] = s
					_, err := drain(s.Scan(ctx, foreign))
					refused("scan of a view", err)
					for name, r := range readers {
						_, err := r.Get(ctx, foreign, key)
						refused(name+": get", err)
						_, err = r.BatchGet(ctx, foreign, [][]byte{key})
						refused(name+": batch-get", err)
						_, err = r.Count(ctx, foreign)
						refused(name+": count", err)
						if p, err := r.Get(ctx, own, key); err != nil ||
							string(p.Value) != string(before.Value) {
							t.Errorf("%s: its own keyspace has %q, %v", name, p.Value, err)
						}
					}
					return nil
				}
				if err := client.View(ctx, read); err != nil {
					t.Error(err)
				}
				_, err = drain(tx.Scan(ctx, foreign))
				refused("scan", err)
				_, err = drain(client.SnapshotAt(before.Version).Scan(ctx, foreign))
				refused("scan of the past", err)
				if tx.Len() != 0 {
					t.Errorf("the transaction has %d writes", tx.Len())
				}
				if _, err := tx.Commit(ctx); err != nil {
					t.Error(err)
				}
				if p, err := own.Get(ctx, key); err != nil || p.Version != before.Version {
					t.Errorf("it was written: %+v, %v", p, err)
				}
			}
		}
	})
}

// Without a function nothing is begun.
func TestNoFunctionToRun(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *fakeCluster) {
		client := c.open()
		defer client.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := client.Update(ctx, nil); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("update: %v", err)
		}
		if err := client.View(ctx, nil); !errors.Is(err, ErrInvalidArgument) {
			t.Errorf("view: %v", err)
		}
	})
}
