package host

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// Each host pings each other one once in a tick. Where heartbeats and their answers go, the pings
// go with them, and there is no other message; when these end, pings come with the ticks again.
func TestPingsGoWithHeartbeats(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100)
		leader, _ := c.awaitLeader(100)
		leads := leader.host.Group(100)
		awake := time.NewTicker(50 * time.Millisecond)
		defer awake.Stop()
		pings, batches := map[[2]uint64]int{}, map[[2]uint64]int{}
		alone := map[[2]uint64]int{}
		last, gap := map[[2]uint64]time.Time{}, map[[2]uint64]time.Duration{}
		count := func(d time.Duration, stir bool) {
			c.net.mu.Lock()
			clear(pings)
			clear(batches)
			clear(alone)
			clear(last)
			clear(gap)
			c.net.onBatch = func(from, to uint64, b *peerpb.MessageBatch) {
				key := [2]uint64{from, to}
				batches[key]++
				if b.Ping == nil {
					return
				}
				if before, ok := last[key]; ok {
					gap[key] = max(gap[key], time.Since(before))
				}
				last[key] = time.Now()
				pings[key]++
				if len(b.Messages) == 0 {
					alone[key]++
				}
			}
			c.net.mu.Unlock()
			for end := time.Now().Add(d); time.Now().Before(end); {
				<-awake.C
				if stir {
					leads.ReadIndex(func(error) {})
				}
			}
			c.net.mu.Lock()
			c.net.onBatch = nil
			c.net.mu.Unlock()
		}
		tick := leader.host.config.Tick
		const ticks = 20
		for _, stir := range []bool{true, false} {
			if !stir {
				time.Sleep(3 * time.Second) // it falls asleep
			}
			count(ticks*tick, stir)
			for from := uint64(1); from <= 3; from++ {
				for to := uint64(1); to <= 3; to++ {
					key := [2]uint64{from, to}
					if from == to {
						continue
					}
					if n := pings[key]; n < ticks-2 || n > ticks*4/3+2 {
						t.Errorf("stirred %v: in %d ticks %d pings from %d to %d", stir, ticks, n, from, to)
					}
					beside := leader.id == from || leader.id == to
					if stir && beside && alone[key] > 2 {
						t.Errorf("%d pings from %d to %d went without heartbeats", alone[key], from, to)
					}
					if gap[key] > 2*tick+tick/8 {
						t.Errorf("stirred %v: no ping for %v from %d to %d", stir, gap[key], from, to)
					}
					if !stir && batches[key] != pings[key] {
						t.Errorf("%d messages from %d to %d, %d with pings", batches[key], from, to, pings[key])
					}
				}
			}
		}
	})
}
