package kvtest_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// ledHere counts the partitions that a server leads.
func ledHere(c *kvtest.Cluster, server int) (n int) {
	for _, r := range c.Process(server).Replicas() {
		if r.Leads {
			n++
		}
	}
	return n
}

// writeFor writes to all partitions for so long, and says how long a write took on average.
func writeFor(t *testing.T, ks *kv.Keyspace, d time.Duration) time.Duration {
	t.Helper()
	began, writes := time.Now(), 0
	for time.Since(began) < d {
		put(t, ks, fmt.Sprint(writes%100), "v")
		writes++
	}
	return time.Since(began) / time.Duration(writes)
}

// fast and slow are how long a sync of a log takes.
const (
	fastSync = time.Millisecond
	slowSync = 50 * time.Millisecond
)

// A server whose disk is slow hands over what it leads, and is told to others; writes are as fast
// as before, although it follows all of them. When its disk is well, it gets its leaderships back.
func TestSlowDiskLeadsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Cores: 3, Latency: latency}) // all with both roles
		for i := range c.Servers() {
			c.Disk(i).SetSyncTimes(fastSync, fastSync)
		}
		client := c.Client(t)
		ks := create(t, client, "things", kv.Hash(12))
		before := writeFor(t, ks, 10*time.Second)
		bad := coreLeaderOf(t, c)
		led := ledHere(c, bad)
		if led == 0 {
			t.Fatal("the server leads nothing to begin with")
		}
		c.Disk(bad).SetSyncTimes(slowSync, slowSync)
		writeFor(t, ks, 20*time.Second)
		if n := ledHere(c, bad); n > 0 {
			t.Errorf("it leads %d partitions", n)
		}
		if coreLeaderOf(t, c) == bad {
			t.Error("it leads the core")
		}
		if during := writeFor(t, ks, 10*time.Second); during > before+before/4 {
			t.Errorf("writes take %v beside a follower with a slow disk, and took %v", during, before)
		}
		told := func() (slow bool) {
			nodes, err := admin.New(client).Nodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				slow = slow || n.DiskSlow && n.Address == c.Endpoints()[bad] && n.LogSync > slowSync/2
			}
			return slow
		}
		if !told() {
			t.Error("nobody is told that its disk is slow")
		}
		c.Disk(bad).SetSyncTimes(fastSync, fastSync)
		writeFor(t, ks, 90*time.Second)
		if n := ledHere(c, bad); n < led {
			t.Errorf("it leads %d partitions when its disk is well, and led %d", n, led)
		}
		if told() {
			t.Error("its disk is said to be slow")
		}
		events, err := admin.New(client).Events(t.Context(), 0, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		var slow, well int
		for _, e := range events {
			if strings.Contains(e.Outcome, "has a slow disk") {
				slow++
			}
			if strings.Contains(e.Outcome, "has no slow disk any more") {
				well++
			}
		}
		if slow != 1 || well != 1 {
			t.Errorf("%d and %d events, want one each", slow, well)
		}
		equal(t, c)
	})
}

// The leader of a partition is moved to another server while one other replica is on a slow disk
// and the third one is there, or is not. The lead goes to the one that is well; or to the slow one,
// which keeps it until the change is made.
func TestMoveBesideASlowDisk(t *testing.T) {
	for _, alone := range []bool{false, true} {
		t.Run(fmt.Sprintf("alone=%v", alone), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				c := kvtest.Start(t, kvtest.Options{Nodes: 4, Separate: true, Latency: latency})
				for i := range c.Servers() {
					c.Disk(i).SetSyncTimes(fastSync, fastSync)
				}
				client := c.Client(t)
				ks := create(t, client, "things", kv.Range())
				put(t, ks, "k", "v")
				leader := leaderOf(t, c)
				var followers []int
				free := 0
				for i := 1; i < c.Servers(); i++ {
					switch {
					case i == leader:
					case len(c.Process(i).Replicas()) > 0:
						followers = append(followers, i)
					default:
						free = i
					}
				}
				// Were the disks of both well, the lower replica id would lead.
				if idOf(c, followers[1]) < idOf(c, followers[0]) {
					slices.Reverse(followers)
				}
				bad, other := followers[0], followers[1]
				id := c.Process(leader).Replicas()[0].Partition
				c.Disk(bad).SetSyncTimes(slowSync, slowSync)
				writeFor(t, ks, 20*time.Second)
				if alone {
					c.Kill(other, 0)
				}
				if err := admin.New(client).MoveReplica(t.Context(), id, c.Process(leader).NodeID(),
					c.Process(free).NodeID()); err != nil {
					t.Fatal(err)
				}
				badLed := false
				eventually(t, "the replica to move", func() bool {
					put(t, ks, "k", "w") // or the disk counts as well
					badLed = badLed || ledHere(c, bad) > 0
					under, err := admin.New(client).Operators(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return len(under) == 0 && len(c.Process(leader).Replicas()) == 0
				})
				if badLed != alone {
					t.Errorf("the server with the slow disk has led: %v", badLed)
				}
				mustHold(t, ks, "k", "w")
			})
		})
	}
}

// A node that is drained hands over to one whose disk is slow, if no other is there, and does not
// get the lead back from it.
func TestDrainToASlowDisk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Nodes: 3, Separate: true, Latency: latency})
		for i := range c.Servers() {
			c.Disk(i).SetSyncTimes(fastSync, fastSync)
		}
		client := c.Client(t)
		ks := create(t, client, "things", kv.Range())
		put(t, ks, "k", "v")
		leader := leaderOf(t, c)
		bad, other := leader%3+1, (leader+1)%3+1
		c.Disk(bad).SetSyncTimes(slowSync, slowSync)
		writeFor(t, ks, 20*time.Second)
		c.Kill(other, 0)
		if _, err := admin.New(client).SetNodeStatus(t.Context(), c.Process(leader).NodeID(),
			admin.NodeDraining); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the slow one to lead", func() bool {
			put(t, ks, "k", "w")
			return ledHere(c, bad) > 0
		})
		writeFor(t, ks, 20*time.Second)
		if ledHere(c, bad) == 0 {
			t.Error("the server that is drained leads again")
		}
	})
}

// idOf is the id of the only replica that a server has.
func idOf(c *kvtest.Cluster, server int) uint64 { return c.Process(server).Replicas()[0].Replica }

// If all disks are slow, no server hands over anything, and nothing pauses.
func TestAllDisksSlow(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := kvtest.Start(t, kvtest.Options{Latency: latency})
		ks := create(t, c.Client(t), "things", kv.Hash(12))
		writeFor(t, ks, 10*time.Second)
		var led []int
		for i := range c.Servers() {
			led = append(led, ledHere(c, i))
			c.Disk(i).SetSyncTimes(slowSync, slowSync)
		}
		writeFor(t, ks, time.Minute)
		for i := range c.Servers() {
			if n := ledHere(c, i); n != led[i] {
				t.Errorf("server %d leads %d partitions, and led %d", i, n, led[i])
			}
		}
	})
}
