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
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A leader that was paused, and believes in itself when it goes on, serves nothing stale: its lease has run out.
func TestPausedLeaderServesNothingStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, func(_ int, s *embedded.ServerConfig) { s.SleepAfter = -1 })
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "old")
		old := leaderOf(t, c)
		_, term := leading(c, old)
		near := c.Client(t) // client-2, which reaches nobody but the old leader
		mustHold(t, near.Keyspace("things"), "k", "old")
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth("client-2", c.Host(other), memnet.Stall)
			}
		}
		c.Pause(old)
		put(t, ks, "k", "new")
		if leads, now := leading(c, old); !leads || now != term {
			t.Errorf("the paused leader knows that time has passed: leads %v in term %d, before in term %d", leads, now, term)
		}
		// It cannot hear of its successor when it goes on, only of its client.
		for other := range c.Servers() {
			if other != old {
				c.Cut(old, other, memnet.Stall)
				c.Cut(other, old, memnet.Stall)
			}
		}
		c.Resume(old)
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			pair, err := near.Keyspace("things").Get(ctx, []byte("k"))
			cancel()
			if err == nil {
				t.Fatalf("read %q from a leader that was paused", pair.Value)
			}
		}
		c.HealAll()
		mustHold(t, near.Keyspace("things"), "k", "new")
		equal(t, c)
	})
}

// leading says whether a server leads its partition as far as it knows, and the term.
func leading(c *kvtest.Cluster, server int) (leads bool, term uint64) {
	for _, r := range c.Process(server).Replicas() {
		return r.Leads, r.Term
	}
	return false, 0
}

// A node whose clock is further off than the bound serves nothing, and the others go on without it; when its clock is mended
// it serves again.
func TestClockBeyondTheBound(t *testing.T) {
	for _, off := range []time.Duration{2 * time.Second, -2 * time.Second, time.Hour, -time.Hour} {
		t.Run(off.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, nil)
				ks := create(t, c.Client(t), "things", kv.Range())
				put(t, ks, "k", "1")
				bad := leaderOf(t, c)
				c.Clock(bad).SetOffset(off)
				time.Sleep(10 * time.Second)
				ready, why := c.Process(bad).Ready()
				if ready || !strings.Contains(why, "clock") {
					t.Errorf("ready %v: %s", ready, why)
				}
				put(t, ks, "k", "2")
				if leads, _ := leading(c, bad); leads {
					t.Error("it still leads")
				}
				c.Clock(bad).SetOffset(0)
				eventually(t, "the node with the mended clock to serve", func() bool { ready, _ := c.Process(bad).Ready(); return ready })
				put(t, ks, "k", "3")
				mustHold(t, ks, "k", "3")
				equal(t, c)
			})
		})
	}
}

// A member of the core whose disk was wiped is not the member it was: it says so, does not vote, and founds nothing.
func TestWipedCoreMemberStaysOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		client := c.Client(t)
		create(t, client, "before", kv.Range())
		c.Kill(0, 0)
		if err := c.Wipe(0); err != nil {
			t.Fatal(err)
		}
		start(t, c, 0)
		time.Sleep(30 * time.Second)
		ready, why := c.Process(0).Ready()
		if ready || !strings.Contains(why, "wiped") {
			t.Errorf("ready %v: %s", ready, why)
		}
		// The two others are the majority.
		create(t, client, "between", kv.Range())
		// Without one of them there is none, whatever the wiped one would say.
		c.Kill(1, 0)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := client.CreateKeyspace(ctx, "without", kv.Range()); err == nil {
			t.Error("the core decided with one member of three and a wiped one")
		}
		start(t, c, 1)
		create(t, client, "after", kv.Range())
		if c.Process(0).LeadsCore() {
			t.Error("the wiped member leads the core")
		}
	})
}

// A disk that fails once ends its server, which says so; what it had acknowledged is there when it is started again.
func TestOneDiskError(t *testing.T) {
	for _, op := range []kvtest.DiskOp{kvtest.DiskRead, kvtest.DiskWrite, kvtest.DiskSync} {
		t.Run(fmt.Sprint(op), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := six(t, func(_ int, s *embedded.ServerConfig) { s.MemTableBytes, s.CacheBytes = 64<<10, 64<<10 })
				ks := create(t, c.Client(t), "things", kv.Range())
				value := strings.Repeat("v", 4<<10)
				for i := range 100 {
					put(t, ks, fmt.Sprint(i), value)
				}
				bad := leaderOf(t, c)
				c.Disk(bad).Fail(op, 1)
				for i := range 100 {
					mustHold(t, ks, fmt.Sprint(i), value)
					put(t, ks, fmt.Sprint(i), "2")
				}
				err := c.Process(bad).Err()
				if err != nil && !errors.Is(err, kvtest.ErrDisk) || err == nil && op != kvtest.DiskRead {
					t.Errorf("the server failed with %v", err)
				}
				c.Kill(bad, 50)
				start(t, c, bad)
				for i := range 100 {
					mustHold(t, ks, fmt.Sprint(i), "2")
				}
				equal(t, c)
			})
		})
	}
}

// A disk whose reserve is all that is left refuses writes, with an error that says so, and takes them again when there is room.
func TestDiskLow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "1")
		for node := 3; node < 6; node++ {
			c.Disk(node).SetLow(true)
		}
		time.Sleep(3 * time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := ks.Put(ctx, []byte("k"), []byte("2")); !errors.Is(err, kv.ErrDiskFull) {
			t.Errorf("a write to disks without room: %v", err)
		}
		mustHold(t, ks, "k", "1")
		for node := 3; node < 6; node++ {
			c.Disk(node).SetLow(false)
		}
		time.Sleep(3 * time.Second)
		put(t, ks, "k", "3")
		equal(t, c)
	})
}

// Raft messages that are lost, late, repeated and out of order make the cluster slower and nothing else.
func TestMessageFaults(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		for from := range c.Servers() {
			for to := range c.Servers() {
				c.Messages().Set(from, to, kvtest.MessageFaults{Lose: 10, Late: 20, Repeat: 20, MaxDelay: 300 * time.Millisecond})
			}
		}
		ks := create(t, c.Client(t), "things", kv.Hash(3))
		for i := range 100 {
			put(t, ks, fmt.Sprint(i%10), fmt.Sprint(i))
		}
		trace := c.Messages().Trace()
		for _, fate := range []string{"lost", "late", "repeated"} {
			if !strings.Contains(trace, ": "+fate+"\n") {
				t.Errorf("no message was %s", fate)
			}
		}
		c.Messages().Heal()
		for i := range 10 {
			mustHold(t, ks, fmt.Sprint(i), fmt.Sprint(90+i))
		}
		equal(t, c)
	})
}
