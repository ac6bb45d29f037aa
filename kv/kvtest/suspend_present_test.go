package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/memnet"
)

// A node on a machine that was suspended, whose monotonic clock stood still with it, does not tell
// the time that it believes in until it has noticed: a client that took it for the present would
// read before what was acknowledged long since.
func TestSuspendedNodeDoesNotTellTheTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, func(_ int, s *embedded.ServerConfig) { s.SleepAfter = -1 })
		writer := create(t, c.Client(t), "things", kv.Hash(6))
		var all [][]byte
		for i := range 12 {
			all = append(all, fmt.Appendf(nil, "k%d", i))
			put(t, writer, string(all[i]), "old")
		}
		near := c.Client(t)
		things := near.Keyspace("things")
		mustHold(t, things, "k0", "old")
		const suspended = 3
		c.Clock(suspended).SetSpeed(0)
		c.Pause(suspended)
		// until what the client knew of the time is too old
		time.Sleep(30*time.Second + 30*time.Millisecond)
		for _, key := range all {
			put(t, writer, string(key), "new")
		}
		for other := range c.Servers() {
			if other != suspended {
				c.Network().CutBoth("client-2", c.Host(other), memnet.Stall)
			}
		}
		c.Resume(suspended)
		c.Clock(suspended).SetSpeed(1)
		read := make(chan []kv.Pair, 1)
		go func() {
			var pairs []kv.Pair
			if err := near.View(t.Context(), func(s *kv.Snapshot) (err error) {
				pairs, err = s.BatchGet(t.Context(), things, all)
				return err
			}); err != nil {
				t.Error(err)
			}
			read <- pairs
		}()
		time.Sleep(20 * time.Millisecond)
		c.HealAll()
		for _, pair := range <-read {
			if string(pair.Value) != "new" {
				t.Errorf("a read that began after the write of \"new\" found %s = %q", pair.Key,
					pair.Value)
			}
		}
	})
}
