package host

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/peerpb"
)

// TestWakeQueueIsBounded: a host that seems to restart again and again has each group that slept
// under it queued once.
func TestWakeQueueIsBounded(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		var ids []keys.PartitionID
		for i := range 30 {
			ids = append(ids, keys.PartitionID(100+i))
		}
		c.create(ids...)
		for _, id := range ids {
			c.awaitLeader(id)
		}
		asleep := func() bool {
			return c.hosts[1].host.Awake()+c.hosts[2].host.Awake()+c.hosts[3].host.Awake() == 0
		}
		c.await("all groups to sleep", asleep)
		h := c.hosts[1].host
		for incarnation := range uint64(1000) {
			h.HandleMessages(
				2,
				&peerpb.MessageBatch{Ping: &peerpb.HostPing{Incarnation: 1 + incarnation}},
			)
			h.HandleMessages(
				3,
				&peerpb.MessageBatch{Ping: &peerpb.HostPing{Incarnation: 1 + incarnation}},
			)
		}
		// Of two hosts, for each group at most: that it is gone, and that it is back.
		if n := h.wakes.length(); n == 0 || n > 4*len(ids) {
			t.Errorf("%d wakings are queued for %d groups", n, len(ids))
		}
		c.await("the queue to be empty", func() bool { return h.wakes.length() == 0 })
		synctest.Wait()
		for _, id := range ids {
			for _, n := range c.hosts {
				n.host.Group(id).Wake()
			}
			c.propose(id, "after")
		}
	})
}

// TestSleepingLeaderWithoutAQuorum: a leader that sleeps gives its office up when so many of its
// followers' hosts are silent that no quorum is left, and not before.
func TestSleepingLeaderWithoutAQuorum(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.create(100, 101, 102)
		leader, _ := c.awaitLeader(100)
		others := slices.DeleteFunc([]uint64{1, 2, 3}, func(id uint64) bool { return id == leader.id })
		g, h := leader.host.Group(100), leader.host
		c.await("the groups to sleep", func() bool { return h.Awake() == 0 })
		c.crash(others[0])
		c.await("a silent host", func() bool { return h.peers.Down(others[0]) })
		c.await("the other groups to find leaders, and all to sleep", func() bool {
			for id := range keys.PartitionID(3) {
				if l, _ := h.Group(100 + id).Leader(); l == 0 || l == keys.ReplicaID(others[0]) {
					return false
				}
			}
			return h.Awake() == 0
		})
		if l, _ := g.Leader(); l != g.Self() {
			t.Fatalf("replica %s leads although a quorum is there", l)
		}
		c.crash(others[1])
		began := time.Now()
		c.await("no leader", func() bool {
			for id := range keys.PartitionID(3) {
				if l, _ := h.Group(100 + id).Leader(); l != 0 {
					return false
				}
			}
			return true
		})
		if took := time.Since(began); took > 4*h.ElectionTimeout() {
			t.Errorf("it has taken %v (virtual)", took)
		}
		c.start(others[0])
		for id := range keys.PartitionID(3) {
			c.await("a leader", func() bool { l, _ := h.Group(100 + id).Leader(); return l != 0 })
		}
	})
}

func (w *wakes) length() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.queue)
}

// unclosed is a state machine for which nothing is closed while its group sleeps, as often as it is
// woken.
type unclosed struct{ *machine }

func (unclosed) CloseIdle() (closed hlc.Timestamp, index uint64, ok bool) {
	return closed, 0, false
}
func (unclosed) NoteClosed(hlc.Timestamp, uint64) {}
func (unclosed) Sleep(group.Join) bool            { return true }
func (unclosed) Unclosed() bool                   { return true }
func (unclosed) SleepsIn(group.Source)            {}

// TestWakesUnclosed: a group for which nothing is closed while it sleeps is woken, unless very many
// are awake already.
func TestWakesUnclosed(t *testing.T) {
	simulate(t, func(t *testing.T, c *cluster) {
		c.machineOf = func(m *machine) group.StateMachine { return unclosed{m} }
		c.create(100)
		leader, _ := c.awaitLeader(100)
		h := leader.host
		asleep := func() bool { return h.Awake() == 0 }
		c.await("sleep", asleep)
		c.await("to be woken", func() bool { return !asleep() })
		c.await("sleep again", asleep)
		h.awake.Add(BusyGroups)
		defer h.awake.Add(-BusyGroups)
		for range 10 * truncateEvery {
			time.Sleep(h.config.Tick) // virtual
			synctest.Wait()
			if n := h.Awake(); n != BusyGroups {
				t.Fatalf("%d groups are awake besides", n-BusyGroups)
			}
		}
	})
}
