package kvtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvprom"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// stuck is a cluster in which a key is locked by a transaction that cannot be asked about: its
// coordinator is gone. free is another key on the same server, in the same partition or not.
func stuck(t *testing.T, samePartition bool) (c *kvtest.Cluster, locked, free string) {
	t.Helper()
	ctx := t.Context()
	c = kvtest.Start(t, kvtest.Options{Nodes: 2, Cores: 1, Separate: true,
		Latency: time.Millisecond})
	admin := c.Client(t)
	ks := create(t, admin, "things", kv.Hash(8), kv.Replicas(1))
	partition := func(key string) uint64 {
		p, err := ks.PartitionOf(ctx, []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	byServer := make(map[int][]string)
	for i := range 60 {
		k := fmt.Sprintf("k%d", i)
		put(t, ks, k, "1")
		s := serverOf(t, c, partition(k))
		byServer[s] = append(byServer[s], k)
	}
	locked = byServer[2][0]
	for _, k := range byServer[2][1:] {
		if (partition(k) == partition(locked)) == samePartition {
			free = k
		}
	}
	tx, err := admin.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{byServer[1][0], locked} {
		if err := tx.Put(ks, []byte(k), []byte("2")); err != nil {
			t.Fatal(err)
		}
	}
	c.Kill(1, 0)
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if _, err := tx.Commit(short); err == nil {
		t.Fatal("it was committed without its coordinator")
	}
	return c, locked, free
}

// A read that waits for long is not taken for lost, and its node is not given up.
func TestAReadThatWaitsIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, locked, free := stuck(t, false)

		registry := prometheus.NewRegistry()
		client := c.Client(t, kvprom.Metrics(registry))
		mine := client.Keyspace("things")
		begun := time.Now()
		got := make(chan string, 1)
		go func() {
			_, err := mine.Get(ctx, []byte(locked)) // the default timeout, 30 s
			got <- fmt.Sprintf("after %v: %v", time.Since(begun), err)
		}()
		before := retries(t, registry)
		for time.Since(begun) < 29*time.Second {
			at := time.Now()
			if _, err := mine.Put(ctx, []byte(free), []byte("3")); err != nil {
				t.Error(err)
			}
			if took := time.Since(at); took > 20*time.Millisecond {
				t.Logf("a put of another key took %v at %v", took, time.Since(begun))
			}
			if now := retries(t, registry); now != before {
				t.Errorf("at %v: %v requests were sent again because of a connection",
					time.Since(begun), now-before)
				before = now
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Log("get:", <-got)
	})
}

// A read that looks for a leader, and waits there at a lock, leaves the partition to the other
// requests of its client.
func TestAReadThatWaitsHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c, locked, free := stuck(t, true)

		// the table comes from the core
		client, err := kv.Open(ctx, c.Endpoints()[:1], kv.Dialer(c.Dialer("client-x")))
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		mine := client.Keyspace("things")
		if _, err := mine.Put(ctx, []byte(free), []byte("3")); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		got := make(chan string, 1)
		go func() {
			short, cancel := context.WithTimeout(ctx, 15*time.Second)
			defer cancel()
			_, err := mine.Get(short, []byte(locked))
			got <- fmt.Sprintf("after %v: %v", time.Since(begun), err)
		}()
		synctest.Wait() // it waits at the lock
		// the connection breaks once, and can be had again at once
		c.Network().Drop("client-x", c.Host(2))
		synctest.Wait()
		for time.Since(begun) < 20*time.Second {
			at := time.Now()
			if _, err := mine.Put(ctx, []byte(free), []byte("3")); err != nil {
				t.Error(err)
			}
			if took := time.Since(at); took > 200*time.Millisecond {
				t.Errorf("a put of another key took %v, begun at %v", took, at.Sub(begun))
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Log("get:", <-got)
	})
}
