package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// When a clock that was behind is believed again, what is led here is written above all that an
// earlier leader can have read by the right time.
func TestReplicasHearOfTheRightTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const behind = 10 * time.Second
		wall := &shifted{offset: -behind}
		c := newCluster(t, 1, func(config *Config) {
			config.Clock = hlc.NewClock(hlc.NewSteady(wall,
				hlc.SystemMonotonic(), 0), nil)
		})
		p := c.createHash(2, 1)[0]
		version := func() int64 {
			r := c.do(func(term uint64) *kvpb.Request { return put(p, term, "k", "v") }, p.Id,
				30*time.Second)
			return int64(r.GetPut().GetVersion().GetWall())
		}
		version() // it leads
		wall.shift(0)
		right := time.Now()
		c.await("the right time to be believed", 10*time.Second,
			func() bool { return c.nodes[1].config.Clock.Physical() >= right.UnixNano() })
		if at := version(); at < right.Add(hlc.DefaultMaxOffset).UnixNano() {
			t.Errorf("written %v after its clock was put right", time.Duration(at-right.UnixNano()))
		}
	})
}

// What a node tells the core of its clock is what that shows, and nothing while it is not trusted.
func TestTheCoreHearsOfTrustedClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		wall := &shifted{}
		c := newCluster(t, 3, func(config *Config) {
			if config.ID == 1 {
				config.Clock = hlc.NewClock(hlc.NewSteady(wall, hlc.SystemMonotonic(), 0), nil)
			}
		})
		c.createHash(2, 3)
		told := func() int64 {
			c.core.mu.Lock()
			defer c.core.mu.Unlock()
			return int64(c.core.stats[1].GetClockUnixNanos())
		}
		c.await("the core hears of the clock", time.Minute, func() bool {
			at := time.Now().Add(-10 * time.Second).UnixNano()
			return told() > at && told() <= time.Now().UnixNano()
		})
		wall.shift(time.Hour)
		c.await("the core hears nothing of a clock that has jumped", time.Minute,
			func() bool { return told() == 0 })
		wall.shift(0)
		c.await("the core hears of the clock again", time.Minute,
			func() bool { return told() != 0 && told() <= time.Now().UnixNano() })
	})
}
