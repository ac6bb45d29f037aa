package kvtest_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
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

// A server whose disk is slow hands over what it leads, and is told to others; writes are as fast as
// before, although it follows all of them. When its disk is well, it gets its leaderships back.
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
			nodes, err := client.Nodes(t.Context())
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
		events, err := client.Events(t.Context(), 0, 0, 100)
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
