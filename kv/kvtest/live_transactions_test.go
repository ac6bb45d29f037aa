package kvtest_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestLiveTransactionsOfThoseWhoAnswer: a server that is down keeps no client from seeing what the
// others know, though more of its partitions are asked than are asked at a time; and it is said
// which do not answer.
func TestLiveTransactionsOfThoseWhoAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency})
		client := c.Client(t)
		ctx := t.Context()
		tx, err := client.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		for _, name := range []string{"a", "b"} {
			ks := create(t, client, name, kv.Hash(128), kv.Replicas(1))
			for key := range byte(64) {
				if _, err := tx.GetForUpdate(ctx, ks, []byte{key}); !errors.Is(err,
					kv.ErrNotFound) {
					t.Fatal(err)
				}
			}
		}
		find := func() (map[uint64]bool, error) {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			found, more, err := admin.New(client).LiveTransactions(ctx, "", 1000)
			if more {
				t.Error("there are more")
			}
			partitions := make(map[uint64]bool)
			for _, x := range found {
				partitions[x.Partition] = true
			}
			if len(partitions) != len(found) {
				t.Errorf("found in %d partitions: %+v", len(partitions), found)
			}
			return partitions, err
		}
		want, err := find()
		if err != nil {
			t.Fatal(err)
		}
		lost := c.Servers() - 1
		var silent []uint64
		for _, r := range c.Process(lost).Replicas() {
			silent = append(silent, r.Partition)
			delete(want, r.Partition)
		}
		slices.Sort(silent)
		if len(silent) <= 64 || len(want) == 0 {
			t.Fatalf("%d partitions will be lost, and locks in %d are left", len(silent), len(want))
		}
		if err := c.Stop(lost); err != nil {
			t.Fatal(err)
		}
		found, err := find()
		if !maps.Equal(found, want) {
			t.Errorf("found in %v, want %v", found, want)
		}
		var unanswered *admin.UnansweredError
		if !errors.As(err, &unanswered) || !errors.Is(err, kv.ErrNoQuorum) {
			t.Fatalf("%v; want an UnansweredError", err)
		}
		var named []uint64
		for _, e := range unanswered.Partitions {
			named = append(named, e.Partition)
			if e.Keyspace == "" || e.Message == "" {
				t.Errorf("did not answer: %v", e)
			}
		}
		slices.Sort(named)
		if !slices.Equal(named, silent) {
			t.Errorf("said not to answer: %v; want %v", named, silent)
		}
	})
}
