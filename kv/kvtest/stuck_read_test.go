package kvtest_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

func TestAReadThatWaitsIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := kvtest.Start(t, kvtest.Options{Nodes: 2, Cores: 1, Separate: true, Latency: time.Millisecond})
		admin := c.Client(t)
		ks := create(t, admin, "things", kv.Hash(8), kv.Replicas(1))
		byServer := map[int][]string{}
		for i := range 60 {
			k := fmt.Sprintf("k%d", i)
			put(t, ks, k, "1")
			p, err := ks.PartitionOf(ctx, []byte(k))
			if err != nil {
				t.Fatal(err)
			}
			s := serverOf(t, c, p)
			byServer[s] = append(byServer[s], k)
		}
		anchor, locked, free := byServer[1][0], byServer[2][0], ""
		for _, k := range byServer[2] {
			a, _ := ks.PartitionOf(ctx, []byte(k))
			b, _ := ks.PartitionOf(ctx, []byte(locked))
			if a != b {
				free = k
			}
		}
		tx, err := admin.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Put(ks, []byte(anchor), []byte("2")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Put(ks, []byte(locked), []byte("2")); err != nil {
			t.Fatal(err)
		}
		c.Kill(1, 0)
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err = tx.Commit(short)
		cancel()
		t.Log("commit:", err)

		registry := prometheus.NewRegistry()
		client := c.Client(t, kv.WithMetrics(registry))
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
				t.Errorf("at %v: %v requests were sent again because of a connection", time.Since(begun), now-before)
				before = now
			}
			time.Sleep(5 * time.Millisecond)
		}
		t.Log("get:", <-got)
	})
}

func TestAReadThatWaitsHoldsUpNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		c := kvtest.Start(t, kvtest.Options{Nodes: 2, Cores: 1, Separate: true, Latency: time.Millisecond})
		admin := c.Client(t)
		ks := create(t, admin, "things", kv.Hash(8), kv.Replicas(1))
		byServer := map[int][]string{}
		for i := range 60 {
			k := fmt.Sprintf("k%d", i)
			put(t, ks, k, "1")
			p, err := ks.PartitionOf(ctx, []byte(k))
			if err != nil {
				t.Fatal(err)
			}
			s := serverOf(t, c, p)
			byServer[s] = append(byServer[s], k)
		}
		anchor, locked, free := byServer[1][0], byServer[2][0], ""
		for _, k := range byServer[2][1:] {
			a, _ := ks.PartitionOf(ctx, []byte(k))
			b, _ := ks.PartitionOf(ctx, []byte(locked))
			if a == b {
				free = k
			}
		}
		tx, err := admin.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = tx.Put(ks, []byte(anchor), []byte("2"))
		_ = tx.Put(ks, []byte(locked), []byte("2"))
		c.Kill(1, 0)
		short, cancel := context.WithTimeout(ctx, 3*time.Second)
		_, err = tx.Commit(short)
		cancel()
		t.Log("commit:", err)

		client, err := kv.Open(ctx, c.Endpoints()[:1], kv.WithDialer(c.Dialer("client-x"))) // the table comes from the core
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
		time.Sleep(2 * time.Second)
		c.Network().Drop("client-x", c.Host(2)) // the connection breaks once, and can be had again at once
		time.Sleep(300 * time.Millisecond)
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
