package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A node that is cut off stops serving before another one starts, which it does within three
// seconds.
func TestACutOffNodeIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 6)
		for _, p := range partitions {
			c.mustPut(p, "k", "before")
		}
		c.network.setCut(1, true)
		cut := time.Now()
		for _, p := range partitions {
			c.await(fmt.Sprintf("partition %d is served by another node", p.Id),
				3*time.Second-time.Since(cut), func() bool {
					// Requests are what wakes a group.
					for _, id := range []uint64{2, 3} {
						q := get(p, 0, "k")
						c.ask(id, q)
					}
					node, _ := c.leaderOf(p.Id)
					return node == 2 || node == 3
				})
		}
		for _, p := range partitions {
			q := get(p, 0, "k")
			if r := c.ask(1, q)[q.Id]; r.GetGet() != nil {
				t.Errorf("the node that is cut off answers a read of partition %d", p.Id)
			}
			c.mustPut(p, "k", "after")
		}
		c.network.setCut(1, false)
		c.await("leaders are spread again", 2*time.Minute,
			func() bool { return c.asPreferred(partitions) })
		for _, p := range partitions {
			c.mustGet(p, "k", "after")
		}
	})
}

// A node that missed more than the logs keep catches up by snapshots, and is then the same as the
// others.
func TestCatchingUpBySnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registries := make(map[keys.NodeID]*prometheus.Registry)
		c := newCluster(t, 3, func(config *Config) {
			config.RetainLogBytes, config.UnflushedBytes = 32<<10, 128<<10
			registries[config.ID] = prometheus.NewRegistry()
			config.Registerer = registries[config.ID]
		})
		partitions := c.createHash(2, 3)
		for _, p := range partitions {
			c.mustPut(p, "k", "before")
		}
		c.nodes[3].crash()
		large := string(make([]byte, 8<<10))
		for i := range 60 {
			for _, p := range partitions {
				c.mustPut(p, fmt.Sprint(i), large)
			}
			time.Sleep(500 * time.Millisecond)
		}
		c.nodes[3].start()
		for _, p := range partitions {
			c.mustPut(p, "k", "after")
		}
		same := func() bool {
			for _, p := range partitions {
				var index, sum uint64
				for i := range uint64(3) {
					at, s, err := c.nodes[i+1].replicas.Get(
						keys.PartitionID(p.Id),
					).Replica.Checksum()
					if err != nil {
						t.Fatal(err)
					}
					if i > 0 && (at != index || s != sum) {
						return false
					}
					index, sum = at, s
				}
			}
			return true
		}
		c.await("all replicas are the same", time.Minute, same)
		c.await("leaders are spread", 2*time.Minute,
			func() bool { return c.asPreferred(partitions) })
		for _, p := range partitions {
			c.mustGet(p, "k", "after")
			c.mustGet(p, "59", large)
		}
		if n := value(t, registries[3], "tidemark_host_snapshots_installed_total"); n == 0 {
			t.Error("no snapshot was installed: the test proves nothing")
		}
	})
}

// While a node closes, every request gets an answer.
func TestRequestsAreAnsweredWhileClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		partitions := c.createHash(2, 3)
		c.await("partitions are led", 10*time.Second,
			func() bool { return c.asPreferred(partitions) })
		m := c.nodes[1]
		p := partitions[0]
		_, term := c.believedLeader(p.Id)
		const count = 100
		answers := make(chan kvpb.ErrorCode, count)
		for i := range count {
			go handle(m.Node, 7, []*kvpb.Request{put(p, term, fmt.Sprint(i), "v")},
				func(r *kvpb.Response) { answers <- r.GetError().GetCode() })
		}
		c.network.attach(1, nil)
		n := m.Node
		n.Close()
		for range count {
			<-answers
		}
		q := put(p, term, "late", "v")
		if r := c.ask(1, q)[q.Id]; r.GetError().GetCode() != kvpb.ErrorCode_NODE_UNHEALTHY {
			t.Errorf("a closed node answers %v", r)
		}
		if ready, _ := n.Ready(); ready {
			t.Error("a closed node says that it is ready")
		}
	})
}
