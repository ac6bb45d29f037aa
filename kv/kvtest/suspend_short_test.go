package kvtest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A machine that was suspended for less than the bound between clocks, so that its clock has not
// jumped, has leases all the same that last longer than was promised.
func TestShortSuspensionProlongsNoLease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, func(_ int, s *embedded.ServerConfig) { s.SleepAfter = -1 })
		const partitions, old = 48, 3
		writer := create(t, c.Client(t), "things", kv.Hash(partitions))
		var all []string
		for i := range 3 * partitions {
			all = append(all, fmt.Sprintf("k%d", i))
			put(t, writer, all[i], "old")
		}
		near := c.Client(t) // client-2, which reaches only the old leader
		things := near.Keyspace("things")
		for _, key := range all {
			mustHold(t, things, key, "old")
		}
		for other := range c.Servers() {
			if other != old {
				c.Network().CutBoth("client-2", c.Host(other), memnet.Stall)
				c.Network().CutBoth(c.Host(old), c.Host(other), memnet.Stall)
			}
		}
		c.Network().CutBoth("client-1", c.Host(old), memnet.Break)
		cut := time.Now()
		time.Sleep(430 * time.Millisecond)
		c.Clock(old).SetSpeed(0)
		c.Pause(old)
		time.Sleep(240 * time.Millisecond)
		c.Resume(old)
		c.Clock(old).SetSpeed(1)
		var stale atomic.Bool
		var g sync.WaitGroup
		for _, key := range all {
			g.Go(func() {
				if _, err := writer.Put(t.Context(), []byte(key), []byte("new")); err != nil {
					t.Error(err)
				}
				written := time.Since(cut)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				pair, err := things.Get(ctx, []byte(key))
				cancel()
				if err == nil && string(pair.Value) == "old" && stale.CompareAndSwap(false, true) {
					t.Errorf("%v after the cut %s, which has been overwritten, is read by the "+
						"old lease", written, key)
				}
			})
		}
		g.Wait()
		c.HealAll()
	})
}
