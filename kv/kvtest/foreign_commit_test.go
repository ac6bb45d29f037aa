package kvtest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestScanSeesCommitOfAFasterClock: the timestamp of a transaction's commit comes from whichever
// node concerned has the fastest clock, so it can lie above the clock of the leader of a partition
// that it writes to, and above the timestamp of a scan that begins after it was acknowledged. The
// scan does not miss it, also when the partition is handed over while the scan runs.
func TestScanSeesCommitOfAFasterClock(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := six(t, nil)
		admin := c.Client(t)
		things := create(t, admin, "things", kv.Range([]byte("m")))
		second := partitionOf(t, c, "z")
		for i := range 20 {
			put(t, things, fmt.Sprintf("a%02d", i), "row")
		}
		put(t, things, "z", "before")
		here, there, fast := leaders(t, c, second)
		// With one replica: followers would bring its timestamps to the clocks of their nodes.
		other := ""
		for i := 0; other == ""; i++ {
			name := fmt.Sprint(other, i)
			create(t, admin, name, kv.Range(), kv.Replicas(1))
			put(t, admin.Keyspace(name), "o", "before")
			if serverOf(t, c, partitionOf(t, c, "z")) == fast { // the youngest partition
				other = name
			}
		}
		c.Clock(here).SetOffset(-2 * bound / 5)
		c.Clock(there).SetOffset(-2 * bound / 5)
		c.Clock(fast).SetOffset(2 * bound / 5)

		writer, reader := c.Client(t), c.Client(t)
		for range 2 { // they know the leaders, and have known them for long
			for _, client := range []*kv.Client{writer, reader} {
				for _, err := range client.Keyspace("things").Scan(t.Context()) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			mustHold(t, writer.Keyspace(other), "o", "before")
			time.Sleep(4 * bound)
		}
		// When the reader asks for the clocks, the slow node has not heard yet of what is
		// acknowledged.
		c.Network().SetLatency("client-2", c.Host(here), 100*latency)
		acknowledged, err := writer.Update(t.Context(), func(tx *kv.Txn) error {
			if err := tx.Put(writer.Keyspace(other), []byte("o"), []byte("after")); err != nil {
				return err
			}
			return tx.Put(writer.Keyspace("things"), []byte("z"), []byte("after"))
		})
		if err != nil {
			t.Fatal(err)
		}
		if physical := c.Clock(here).Now(); acknowledged.Wall <= physical {
			t.Fatalf("the commit at %s does not lie above the slow clocks, which show %d",
				acknowledged, physical)
		}
		rows, found := 0, ""
		for pair, err := range reader.Keyspace("things").Scan(t.Context(), kv.PageSize(5)) {
			if err != nil {
				t.Fatal(err)
			}
			if rows++; rows == 1 {
				transferLeadership(t, c, second, there)
				time.Sleep(4 * bound) // the transaction's locks have become versions
			}
			if string(pair.Key) == "z" {
				found = string(pair.Value)
			}
		}
		if found != "after" {
			t.Errorf("in the last of %d rows the scan found %q, which was overwritten before it "+
				"began", rows, found)
		}
	})
}

// leaders waits until two of the last three servers lead one of two partitions each. They are the
// one that leads the given partition, the one that leads the other, and the one that leads none.
func leaders(t *testing.T, c *kvtest.Cluster, partition uint64) (here, there, none int) {
	t.Helper()
	for range 60 {
		time.Sleep(time.Second)
		here, there, none = 0, 0, 0
		for server := 3; server < 6; server++ {
			switch led := ledBy(c, server); {
			case len(led) == 0:
				none = server
			case len(led) == 1 && led[0] == partition:
				here = server
			case len(led) == 1:
				there = server
			}
		}
		if here != 0 && there != 0 && none != 0 {
			return here, there, none
		}
	}
	t.Fatal("one server leads both partitions")
	return 0, 0, 0
}

// ledBy is the partitions that a server leads.
func ledBy(c *kvtest.Cluster, server int) (led []uint64) {
	for _, r := range c.Process(server).Replicas() {
		if r.Leads {
			led = append(led, r.Partition)
		}
	}
	return led
}
