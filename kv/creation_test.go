package kv

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/fakeserver"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// slowly has a new keyspace get its partitions one after the other, and no more than upTo.
func (c *fakeCluster) slowly(k *clusterpb.Keyspace, between time.Duration, upTo int) {
	var held []*fakeserver.Partition
	for id, p := range c.Partitions {
		if p.Desc.Keyspace == k.Id {
			held = append(held, p)
			delete(c.Partitions, id)
		}
	}
	k.State = clusterpb.KeyspaceState_CREATING
	go func() {
		for i, p := range held[:min(upTo, len(held))] {
			time.Sleep(between)
			c.Set(func() {
				c.Partitions[p.Desc.Id] = p
				if i == len(held)-1 {
					k.State = clusterpb.KeyspaceState_ACTIVE
				}
				c.TellLocked()
			})
		}
	}()
}

// A keyspace with many partitions may take longer than a request: what is bounded is the time
// without progress, which is told.
func TestCreationIsBoundedByItsProgress(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		var told []int
		client := c.open(RequestTimeout(10*time.Second),
			CreationProgress(func(keyspace string, made, total int) {
				if keyspace != "slow" || total != 8 {
					t.Errorf("progress of %s, of %d", keyspace, total)
				}
				told = append(told, made)
			}))
		defer client.Close()
		create := func(ctx context.Context, upTo int) error {
			c.Set(func() { c.Created = func(k *clusterpb.Keyspace) { c.slowly(k, 6*time.Second, upTo) } })
			told = nil
			_, err := client.CreateKeyspace(ctx, "slow", Hash(8))
			return err
		}
		if err := create(t.Context(), 8); err != nil {
			t.Fatalf("each partition took 6 s, the limit is 10 s: %v", err)
		}
		if !slices.IsSorted(told) || len(told) == 0 || told[len(told)-1] != 8 {
			t.Errorf("progress: %v", told)
		}
		if err := client.DropKeyspace(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := create(t.Context(), 3)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "3 of 8 are there") ||
			!strings.Contains(err.Error(), "goes on being set up") {
			t.Errorf("a creation that stands still: %v", err)
		}
		if took := time.Since(began); took < 28*time.Second || took > 30*time.Second {
			t.Errorf("it was given up after %s", took)
		}
		time.Sleep(time.Minute)
		if err := client.DropKeyspace(t.Context(), "slow"); err != nil {
			t.Fatal(err)
		}
		// A deadline of the caller's own stands.
		short, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := create(short, 8); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a creation with a deadline: %v", err)
		}
		time.Sleep(time.Minute) // the last partitions
	})
}

// A keyspace may have more hash numbers than a byte counts.
func TestKeyspaceOfManyHashNumbers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
		client := c.open(RequestTimeout(10 * time.Second))
		defer client.Close()
		ks, err := client.CreateKeyspace(t.Context(), "many", Hash(1000))
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			if _, err := ks.Put(t.Context(), fmt.Appendf(nil, "key%d", i), []byte("v")); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := ks.Count(t.Context()); err != nil || n != 100 {
			t.Error(n, err)
		}
	})
}
