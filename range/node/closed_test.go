package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// closedBehind is how far behind the clock a replica's closed timestamp is.
func (c *cluster) closedBehind(node uint64, p *clusterpb.Partition) time.Duration {
	m := c.nodes[node]
	if m.Node == nil {
		return 0
	}
	h := m.replicas.Get(keys.PartitionID(p.Id))
	if h == nil {
		return time.Hour
	}
	return time.Duration(time.Now().UnixNano() - h.Replica.Closed().Wall)
}

// closedOn says that on nodes all partitions are closed up to a moment ago.
func (c *cluster) closedOn(partitions []*clusterpb.Partition, nodes ...uint64) func() bool {
	const most = 1500 * time.Millisecond // the lag, and a few ticks
	return func() bool {
		for _, p := range partitions {
			for _, node := range nodes {
				if c.closedBehind(node, p) > most {
					return false
				}
			}
		}
		return true
	}
}

// stayClosed checks that on nodes all partitions are closed up to a moment ago, for some time,
// after elections that may be due.
func (c *cluster) stayClosed(what string, partitions []*clusterpb.Partition, nodes ...uint64) {
	c.t.Helper()
	time.Sleep(5 * time.Second) // virtual
	c.await(what+": closed", 20*time.Second, c.closedOn(partitions, nodes...))
	for range 40 {
		time.Sleep(100 * time.Millisecond) // virtual
		synctest.Wait()
		if !c.closedOn(partitions, nodes...)() {
			for _, p := range partitions {
				for _, node := range nodes {
					c.t.Logf("partition %d, node %d: %s", p.Id, node, c.closedBehind(node, p))
				}
			}
			c.t.Fatal(what + ": a closed timestamp stands still")
		}
	}
}

func anyReplica(p *clusterpb.Partition, key string, atLeast hlc.Timestamp) *kvpb.Request {
	return &kvpb.Request{Partition: p.Id, Generation: p.Generation,
		ReplicaRead: &kvpb.ReplicaRead{AtLeast: wire.ToTimestamp(atLeast)},
		Command:     &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte(key)}}}
}

// Closed timestamps advance on every replica, of partitions that are written, that are awake, and
// that sleep; while one node of three is away, on the others; and on that one when it is back.
// Every replica then answers with what was written.
func TestClosedTimestampsAdvanceEverywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(c *Config) { c.SleepAfter = 20 * time.Millisecond })
		partitions := c.createHash(2, 12)
		c.await("every partition is led where it is preferred", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		asleep := func() bool {
			for _, m := range c.nodes {
				if m.Node != nil && m.host.Awake() > 0 {
					return false
				}
			}
			return true
		}
		c.mustPut(partitions[0], "k", "1")
		c.stayClosed("at first", partitions, 1, 2, 3)
		c.await("all groups sleep", 30*time.Second, asleep)
		c.stayClosed("asleep", partitions, 1, 2, 3)
		if !asleep() {
			t.Fatal("it takes waking groups")
		}

		// A write wakes one of them; what was closed in its sleep is below it.
		before := c.nodes[2].replicas.Get(keys.PartitionID(partitions[0].Id)).Replica.Closed()
		c.mustPut(partitions[0], "k", "2")
		c.stayClosed("one awake", partitions, 1, 2, 3)
		for node := uint64(1); node <= 3; node++ {
			q := anyReplica(partitions[0], "k", hlc.Timestamp{})
			answer := c.ask(node, q)[q.Id]
			if answer.GetError() != nil {
				t.Fatal(answer.Error)
			}
			get := answer.GetGet()
			if string(get.GetValue()) != "2" || wire.FromTimestamp(answer.ReadAt).Less(before) {
				t.Errorf("node %d answers %v", node, answer)
			}
			if version := wire.FromTimestamp(get.GetVersion()); version.LessEq(before) {
				t.Errorf("written at %s, and %s was closed", version, before)
			}
		}

		// Without a node, others lead what it led, and close.
		c.nodes[3].crash()
		c.stayClosed("a node is away", partitions, 1, 2)
		c.nodes[3].start()
		c.awaitServing(c.nodes[3])
		c.stayClosed("it is back", partitions, 1, 2, 3)
		c.await("all groups sleep again", time.Minute, asleep)
		c.stayClosed("asleep again", partitions, 1, 2, 3)
		if !asleep() {
			t.Fatal("it takes waking groups")
		}

		// A node that is cut off closes nothing for others, nor for itself.
		c.network.setCut(1, true)
		c.stayClosed("a node is cut off", partitions, 2, 3)
		for _, p := range partitions {
			if behind := c.closedBehind(1, p); behind < 4*time.Second {
				t.Errorf("partition %d: cut off, it is closed up to %s ago", p.Id, behind)
			}
		}
		c.network.setCut(1, false)
		c.stayClosed("it is connected again", partitions, 1, 2, 3)
	})
}
