package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/reports"
)

func (c *core) heartbeats() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.beats
}

// A node that the core tells of orders sends a heartbeat, and however often it is told, no more
// than its pace allows. What comes of itself comes as before.
func TestHeartbeatsOfANodeThatIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		time.Sleep(10 * time.Second) // virtual: until nothing changes
		quiet := c.core.heartbeats()
		time.Sleep(30 * time.Second) // virtual
		if n := c.core.heartbeats() - quiet; n < 9 || n > 11 {
			t.Errorf("%d heartbeats in 30 s in which nothing happens, one each 3 s are due", n)
		}
		n := c.nodes[1]
		before := c.core.heartbeats()
		n.Wake()
		time.Sleep(reports.HeartbeatPause) // virtual
		synctest.Wait()
		if n := c.core.heartbeats() - before; n == 0 {
			t.Error("no heartbeat although the core has orders")
		}
		before = c.core.heartbeats()
		for range 3000 {
			n.Wake()
			time.Sleep(time.Millisecond) // virtual
		}
		if n := c.core.heartbeats() - before; n < 100 || n > 160 {
			t.Errorf("%d heartbeats in 3 s in which the node is told of orders all the time; one each "+
				"%s are due", n, reports.HeartbeatPause)
		}
	})
}

// A node that has carried out an order, and the one that leads what has split off, report that at
// once: what has split off last splits again and again within one interval of heartbeats.
func TestOrdersFollowEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		const parts = 30
		s := newDivider(c, 1, parts)
		s.chain = true
		for i := range splitKeys {
			s.put(key(i), "value")
		}
		time.Sleep(10 * time.Second) // virtual: until nothing changes
		s.begin()
		before := c.core.heartbeats()
		for _, m := range c.nodes {
			m.Wake()
		}
		time.Sleep(reports.FirstLease / 3) // virtual
		if n := len(s.partitions()); n < parts {
			t.Errorf("there are %d partitions after one interval of heartbeats, %d are ordered", n, parts)
		}
		if n := c.core.heartbeats() - before; n > 4*parts {
			t.Errorf("%d heartbeats for %d splits", n, parts-1)
		}
	})
}
