package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/lifecycle"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// TestABrokenReplicaGoesWithItsKeyspace: a replica that does not open is removed when its partition
// is, and leaves a tombstone; also when that was while its node was away.
func TestABrokenReplicaGoesWithItsKeyspace(t *testing.T) {
	for _, away := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, 3, nil)
			partitions := c.createHash(2, 4)
			for _, p := range partitions {
				c.mustPut(p, "k", "v")
			}
			m, p := c.nodes[1], partitions[0]
			id := keys.PartitionID(p.Id)
			if err := m.state.Flush(); err != nil {
				t.Fatal(err)
			}
			b := m.state.NewBatch()
			if err := b.Set(keys.LocalKey(id, keys.SuffixApplied), []byte("nonsense"),
				nil); err != nil {
				t.Fatal(err)
			}
			if err := m.state.Commit(b); err != nil {
				t.Fatal(err)
			}
			b.Close()
			m.stop()
			drop := func() {
				u := &clusterpb.TableUpdate{RemovedKeyspaces: []uint32{2}}
				for _, p := range partitions {
					u.RemovedPartitions = append(u.RemovedPartitions, p.Id)
				}
				c.core.update(u)
			}
			if away {
				drop()
			}
			m.start()
			if !away {
				c.awaitServing(m)
				if m.lifecycle.BrokenBy(id) == nil {
					t.Fatal("the replica is not broken")
				}
				drop()
			}
			c.await("the replicas are gone", 2*time.Minute,
				func() bool { return len(m.replicas.All()) == 0 && len(m.lifecycle.Failed()) == 0 })
			identities, err := m.host.Log().Identities()
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range identities {
				if !x.Removed {
					t.Errorf("partition %s has no tombstone", x.Group)
				}
			}
			if marked, err := lifecycle.ReadRemovals(m.config.Log); err != nil || len(marked) > 0 {
				t.Errorf("marked: %v, %v", marked, err)
			}
			m.stop()
			m.start()
			if n := len(m.replicas.All()); n != 0 || len(m.lifecycle.Failed()) != 0 {
				t.Errorf("after a restart %d replicas, %d of them broken", n, len(m.lifecycle.Failed()))
			}
		})
	}
}
