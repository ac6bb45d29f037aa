package kvtest_test

import (
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// The first timestamps of a leader are up to one maximum offset ahead of its clock. When it hands
// over at once to a node whose clock is behind its own, they are further ahead of that one's than
// one maximum offset: a scan over several partitions, which begins with the clocks of their
// leaders, has to see what was written at them.
func TestScanSeesWritesOfAFasterClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		writer := c.Client(t)
		ks := create(t, writer, "things", kv.Range([]byte("m")))
		put(t, ks, "a", "0")
		put(t, ks, "z", "0")
		// The last server is fast, the others are slow: as far apart as they may be.
		nodes := []int{3, 4, 5}
		for _, n := range nodes {
			c.Clock(n).SetOffset(-2 * bound / 5)
		}
		fast := 5
		c.Clock(fast).SetOffset(2 * bound / 5)
		time.Sleep(5 * time.Second)
		// The partition of "a" stays on a slow node, that of "z" goes to the fast one and back.
		a, z := partitionOf(t, c, "a"), partitionOf(t, c, "z")
		slow := 3
		transferLeadership(t, c, a, slow)
		transferLeadership(t, c, z, slow)
		for round := range 5 {
			// Long enough for all clocks to pass what was handed out in the last round.
			time.Sleep(2 * time.Second)
			value := string(rune('1' + round))
			transferLeadership(t, c, z, fast)
			put(t, ks, "z", value+" fast")
			transferLeadership(t, c, z, slow)
			put(t, ks, "z", value+" slow")
			// A client that has seen none of that.
			reader := c.Client(t)
			found := ""
			for pair, err := range reader.Keyspace("things").Scan(t.Context(), kv.All()) {
				if err != nil {
					t.Fatal(err)
				}
				if string(pair.Key) == "z" {
					found = string(pair.Value)
				}
			}
			if found != value+" slow" {
				t.Fatalf("round %d: a scan that began after it was written finds %q", round, found)
			}
		}
	})
}

// partitionOf finds the partition of a keyspace of two by one of its keys, "a" or "z": the second
// one's id is the higher.
func partitionOf(t *testing.T, c *kvtest.Cluster, key string) (id uint64) {
	t.Helper()
	for i := range c.Servers() {
		for _, r := range c.Process(i).Replicas() {
			if id == 0 || (key == "a" && r.Partition < id) || (key == "z" && r.Partition > id) {
				id = r.Partition
			}
		}
	}
	return id
}

// transferLeadership has a server lead a partition.
func transferLeadership(t *testing.T, c *kvtest.Cluster, partition uint64, to int) {
	t.Helper()
	find := func(server int) (r embedded.ReplicaState) {
		for _, r = range c.Process(server).Replicas() {
			if r.Partition == partition {
				return r
			}
		}
		return embedded.ReplicaState{}
	}
	target := find(to).Replica
	for deadline := time.Now().Add(time.Minute); !find(to).Leads; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("server %d does not get partition %d", to, partition)
		}
		for i := range c.Servers() {
			if find(i).Leads {
				c.Process(i).TransferLeader(partition, target)
			}
		}
	}
}
