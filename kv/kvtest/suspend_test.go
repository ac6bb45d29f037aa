package kvtest_test

import (
	"context"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A leader in a virtual machine that was suspended: its monotonic clock stood still with it, its wall clock has been put right. It does not hear of its successor, and
// serves nothing by the lease that it had.
func TestSuspendedLeaderServesNothingStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, func(_ int, s *embedded.ServerConfig) { s.SleepAfter = -1 })
		ks := create(t, c.Client(t), "things", kv.Range())
		put(t, ks, "k", "old")
		old := leaderOf(t, c)
		near := c.Client(t) // client-2, which reaches nobody but the old leader
		things := near.Keyspace("things")
		mustHold(t, things, "k", "old")
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth("client-2", c.Host(other), memnet.Stall)
			}
		}
		c.Clock(old).SetSpeed(0)
		c.Pause(old)
		put(t, ks, "k", "new")
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth(c.Host(old), c.Host(other), memnet.Stall)
			}
		}
		c.Resume(old)
		c.Clock(old).SetSpeed(1)
		// Until long after the lease would have run out, had nobody noticed.
		stale := 0
		for resumed := time.Now(); time.Since(resumed) < 2*time.Second; {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			pair, err := things.Get(ctx, []byte("k"))
			cancel()
			if err == nil && string(pair.Value) == "old" {
				if stale++; stale == 1 {
					t.Errorf("a stale read %v after the machine went on", time.Since(resumed))
				}
			}
		}
		c.HealAll()
		mustHold(t, things, "k", "new")
	})
}

// The same for the leader of the core.
func TestSuspendedCoreLeaderServesNothingStale(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		admin := c.Client(t)
		create(t, admin, "things", kv.Range())
		near := c.Client(t)
		if all, err := near.Keyspaces(t.Context()); err != nil || len(all) != 1 {
			t.Fatal(all, err)
		}
		old := 0
		for i := range c.Servers() {
			if c.Process(i).LeadsCore() {
				old = i
			}
		}
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth("client-2", c.Host(other), memnet.Stall)
			}
		}
		c.Clock(old).SetSpeed(0)
		c.Pause(old)
		create(t, admin, "others", kv.Range())
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth(c.Host(old), c.Host(other), memnet.Stall)
			}
		}
		c.Resume(old)
		c.Clock(old).SetSpeed(1)
		for resumed := time.Now(); time.Since(resumed) < 2*time.Second; {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			all, err := near.Keyspaces(ctx)
			cancel()
			if err == nil && len(all) == 1 {
				t.Fatalf("a stale read %v after the machine went on", time.Since(resumed))
			}
		}
		c.HealAll()
		if all, err := near.Keyspaces(t.Context()); err != nil || len(all) != 2 {
			t.Error(all, err)
		}
	})
}
