package kvtest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// A follower below its reserve stores nothing more, but for a part of the reserve, and catches up
// when it has room again. With two of three below theirs, writes are refused, and the refusal says
// why.
func TestFollowerKeepsItsReserve(t *testing.T) {
	const reserve = 1 << 20
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency,
			Configure: func(_ int, s *embedded.ServerConfig) { s.MinFreeBytes = reserve }})
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		leader := leaderOf(t, c)
		full := 3
		if full == leader {
			full = 4
		}
		c.Disk(full).SetLow(true)
		time.Sleep(3 * time.Second)
		before := c.Disk(full).Written()
		value := bytes.Repeat([]byte("v"), 32<<10)
		for i := range 200 {
			if _, err := ks.Put(t.Context(), fmt.Appendf(nil, "k%d", i), value); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(3 * time.Second)
		if wrote := c.Disk(full).Written() - before; wrote > reserve/2 {
			t.Errorf("a follower with a reserve of %d bytes wrote %d bytes below it", reserve,
				wrote)
		}
		second := 12 - leader - full
		c.Disk(second).SetLow(true)
		time.Sleep(3 * time.Second)
		if _, err := ks.Put(t.Context(), []byte("k"), value); !errors.Is(err, kv.ErrDiskFull) {
			t.Errorf("a write with two of three disks full: %v", err)
		}
		mustHold(t, ks, "k", "1")
		c.Disk(full).SetLow(false)
		c.Disk(second).SetLow(false)
		time.Sleep(3 * time.Second)
		put(t, ks, "k", "2")
		equal(t, c)
	})
}

// Servers whose disks run full keep a part of their reserve, and a keyspace that is dropped gives
// its room back: writes to others go on without anything else being done.
func TestDropOnFullDisks(t *testing.T) {
	const capacity, reserve = 24 << 20, 4 << 20
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency,
			Configure: func(_ int, s *embedded.ServerConfig) {
				s.MinFreeBytes, s.RetainLogBytes = reserve, 64<<10
			}})
		client := c.Client(t)
		large, small := create(t, client, "large", kv.Hash(3)), create(t, client, "small",
			kv.Hash(3))
		put(t, small, "k", "1")
		for server := range c.Servers() {
			c.Disk(server).SetCapacity(capacity)
		}
		random := rand.NewChaCha8([32]byte{1})
		value := make([]byte, 64<<10)
		full := 0
		for i := 0; full < 20 && i < 5000; i++ {
			_, _ = random.Read(value)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := large.Put(ctx, fmt.Appendf(nil, "k%d", i), value)
			cancel()
			if errors.Is(err, kv.ErrDiskFull) {
				full++
				time.Sleep(500 * time.Millisecond)
			}
		}
		if full == 0 {
			t.Fatal("the disks do not run full")
		}
		time.Sleep(10 * time.Second)
		for server := range c.Servers() {
			left := capacity - c.Disk(server).Used()
			t.Logf("server %d has %d KiB left of a reserve of %d", server, left>>10, reserve>>10)
			if left < reserve/8 {
				t.Errorf("server %d has %d bytes left of a reserve of %d", server, left, reserve)
			}
		}
		mustHold(t, small, "k", "1")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := client.DropKeyspace(ctx, "large"); err != nil {
			t.Fatal(err)
		}
		putWithin(t, small, "k", "2", time.Minute)
		for server := range c.Servers() {
			t.Logf("server %d has %d KiB left after the drop", server,
				(capacity-c.Disk(server).Used())>>10)
		}
		if err := c.Restart(0); err != nil {
			t.Fatal(err)
		}
		ready(t, c)
	})
}
