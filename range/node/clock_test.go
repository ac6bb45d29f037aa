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
