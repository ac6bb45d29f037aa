package node

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Garbage collection does not pass what the table says is protected, also on a node that restarts
// or has opened its replicas later, and passes it when the table says so no more.
func TestGarbageIsKeptForConsumers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		p := c.createHash(2, 1)[0]
		protect := func(at hlc.Timestamp) {
			c.core.update(&clusterpb.TableUpdate{Keyspaces: []*clusterpb.Keyspace{{Id: 2, Name: "ks2",
				Partitioning: clusterpb.Partitioning_HASH, HashPartitions: 1, ReplicationFactor: 3,
				GcWindowSeconds: 60, State: clusterpb.KeyspaceState_ACTIVE,
				Protected: wire.ToClusterTimestamp(at)}}})
		}
		for i := range 10 {
			c.mustPut(p, "k", fmt.Sprint(i))
		}
		time.Sleep(time.Second) // virtual
		middle := hlc.FromTime(time.Now())
		protect(middle)
		time.Sleep(time.Second) // virtual
		for i := range 10 {
			c.mustPut(p, "k", fmt.Sprint(10+i))
		}
		versions := func() (n uint64) {
			for _, m := range c.nodes {
				n = max(n, m.replicas.Get(keys.PartitionID(p.Id)).Replica.Stats().Versions)
			}
			return n
		}
		// Of what came before, the newest version is seen at the protected timestamp.
		c.await("what is not needed goes", time.Hour, func() bool { return versions() == 11 })
		time.Sleep(10 * time.Minute) // virtual
		if n := versions(); n != 11 {
			t.Fatalf("%d versions are left while they are protected, want 11", n)
		}
		// Nodes know it from their own disks before the core answers.
		c.core.setDown(true)
		for _, m := range c.nodes {
			m.stop()
		}
		for _, m := range c.nodes {
			m.start()
		}
		for _, m := range c.nodes {
			c.awaitServing(m)
		}
		c.mustPut(p, "other", "v")
		time.Sleep(10 * time.Minute) // virtual
		if n := versions(); n != 12 {
			t.Fatalf("%d versions are left after a restart, want 12", n)
		}
		c.core.setDown(false)
		protect(middle.Add(2 * time.Second))
		c.await("it follows the consumer", time.Hour, func() bool { return versions() == 2 })
		c.mustPut(p, "k", "last")
		protect(hlc.Timestamp{})
		c.await("it goes after the window", time.Hour, func() bool { return versions() == 2 })
		c.mustGet(p, "k", "last")
	})
}
