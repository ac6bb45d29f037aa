package kvtest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A leader whose log cannot be written gives up its leadership, and is not elected again while that lasts.
func TestLeaderWithAStalledDiskHandsOver(t *testing.T) {
	for _, sleepy := range []bool{false, true} {
		t.Run(fmt.Sprintf("asleep %v", sleepy), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				ks := create(t, c.Client(t), "things", kv.Range())
				put(t, ks, "k", "1")
				stalled := leaderOf(t, c)
				if sleepy {
					time.Sleep(10 * time.Second)
				}
				c.Disk(stalled).SetStalled(true)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if _, err := ks.Put(ctx, []byte("k"), []byte("2")); err != nil {
					t.Fatalf("with one of three disks standing still: %v", err)
				}
				mustHold(t, ks, "k", "2")
				// Without the new leader the two others are a quorum still, of which only one can write.
				for range 3 {
					time.Sleep(5 * time.Second)
					put(t, ks, "k", "3")
					if leads, _ := leading(c, stalled); leads {
						t.Error("the node whose disk is stalled leads")
					}
				}
				c.Disk(stalled).SetStalled(false)
				put(t, ks, "k", "4")
				equal(t, c)
				mustHold(t, ks, "k", "4")
			})
		})
	}
}

// A node whose disk is stalled leaves elections to the others.
func TestStalledDiskIsNotElected(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 5, Cores: 1, Separate: true, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range(), kv.Replicas(5))
		put(t, ks, "k", "1")
		stalled := leaderOf(t, c)
		c.Disk(stalled).SetStalled(true)
		put(t, ks, "k", "2")
		for range 8 {
			leader := leaderOf(t, c)
			c.Isolate(leader, memnet.Stall)
			written := make(chan struct{})
			go func() {
				defer close(written)
				put(t, ks, "k", "3")
			}()
			for done := false; !done; time.Sleep(20 * time.Millisecond) {
				select {
				case <-written:
					done = true
				default:
				}
				if leads, _ := leading(c, stalled); leads {
					t.Fatal("the node whose disk is stalled was elected")
				}
			}
			c.Rejoin(leader)
			time.Sleep(2 * time.Second)
		}
		c.Disk(stalled).SetStalled(false)
		equal(t, c)
	})
}

// When all disks stand still for a while, all goes on afterwards.
func TestAllDisksStall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Hash(3))
		for i := range 20 {
			put(t, ks, fmt.Sprint(i), "1")
		}
		for node := 3; node < 6; node++ {
			c.Disk(node).SetStalled(true)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := ks.Put(ctx, []byte("0"), []byte("2")); err == nil {
			t.Error("a write was acknowledged that is on no disk")
		}
		for node := 3; node < 6; node++ {
			c.Disk(node).SetStalled(false)
		}
		for i := range 20 {
			put(t, ks, fmt.Sprint(i), "3")
			mustHold(t, ks, fmt.Sprint(i), "3")
		}
		equal(t, c)
	})
}

// putWithin tries a write until it is taken.
func putWithin(t *testing.T, ks *kv.Keyspace, key, value string, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(50 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := ks.Put(ctx, []byte(key), []byte(value))
		cancel()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("not written within %v: %v", limit, err)
		}
	}
}

// Leaders on a node without room hand over to nodes with room, and do not come back while that lasts. Reads go on all the time.
func TestLeadersWithAFullDiskHandOver(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Hash(6))
		keys := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}
		for _, key := range keys {
			put(t, ks, key, "1")
		}
		full := leaderOf(t, c)
		leads := func() bool {
			for _, r := range c.Process(full).Replicas() {
				if r.Leads {
					return true
				}
			}
			return false
		}
		c.Disk(full).SetLow(true)
		eventually(t, "the node without room to hand over", func() bool { return !leads() })
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
			for _, key := range keys {
				put(t, ks, key, "2")
				mustHold(t, ks, key, "2")
			}
			if leads() {
				t.Fatal("the node without room leads again")
			}
		}
		c.Disk(full).SetLow(false)
		eventually(t, "the node that has room again to lead", func() bool {
			put(t, ks, "a", "3")
			return leads()
		})
		equal(t, c)
	})
}

// When all disks are full nobody hands over to anybody, and leaders serve reads; when they start anew, they elect leaders for that.
func TestAllDisksFull(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		client := c.Client(t)
		ks := create(t, client, "things", kv.Hash(3))
		keys := []string{"a", "b", "c", "d", "e", "f"}
		for _, key := range keys {
			put(t, ks, key, "1")
		}
		for node := 3; node < 6; node++ {
			c.Disk(node).SetLow(true)
		}
		time.Sleep(5 * time.Second)
		terms := func() map[uint64]uint64 {
			found := make(map[uint64]uint64)
			for node := 3; node < 6; node++ {
				for _, r := range c.Process(node).Replicas() {
					if r.Leads {
						found[r.Partition] = r.Term
					}
				}
			}
			return found
		}
		before := terms()
		if len(before) != 3 {
			t.Fatalf("%d of 3 partitions are led", len(before))
		}
		for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(time.Second) {
			for _, key := range keys {
				mustHold(t, ks, key, "1")
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				_, err := ks.Put(ctx, []byte(key), []byte("2"))
				cancel()
				if !errors.Is(err, kv.ErrDiskFull) {
					t.Fatalf("a write to disks without room: %v", err)
				}
			}
		}
		for partition, term := range terms() {
			if term != before[partition] {
				t.Errorf("partition %d went from term %d to %d", partition, before[partition], term)
			}
		}
		for node := 3; node < 6; node++ {
			if err := c.Restart(node); err != nil {
				t.Fatal(err)
			}
		}
		for _, key := range keys {
			mustHold(t, ks, key, "1")
		}
	})
}

// The longest of the logs may be on a full disk: its replica is elected if nobody else can be, though only after a while.
func TestFullNodeIsElectedIfItHasTo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Separate: true, Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		// Server 5 misses a write, and server 4, which has it, is lost; server 3 has it, and no room.
		c.Kill(5, 0)
		putWithin(t, ks, "k", "2", 20*time.Second)
		c.Disk(3).SetLow(true)
		c.Kill(4, 0)
		start(t, c, 5)
		mustHold(t, ks, "k", "2")
	})
}
