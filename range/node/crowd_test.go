package node

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/leadership"
)

// A new keyspace with thousands of partitions elects its leaders in portions: as many groups are
// awake at a time as do not keep each other from ending their elections. Each has one election, won
// by the replica that is to lead.
func TestManyNewGroupsElectInPortions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 3, func(config *Config) { config.CampaignsPerSecond = 10_000 })
		const partitions = 6000
		made := c.createHash(2, partitions)
		most := 0
		c.await("all have the leaders that they are to have", 30*time.Second, func() bool {
			for _, m := range c.nodes {
				most = max(most, m.host.Awake())
			}
			return c.asPreferred(made)
		})
		// Each node may go too far by what it starts at a time, before it sees what the others have
		// started.
		if limit := leadership.BusyGroups + 3*500 + 500; most > limit {
			t.Errorf("%d of %d groups were awake at a time, the limit is about %d", most,
				partitions, limit)
		}
		for _, p := range made {
			if _, term := c.believedLeader(p.Id); term != 1 {
				t.Fatalf("partition %d is at term %d after one election", p.Id, term)
			}
		}
		c.await("all sleep", 30*time.Second, func() bool {
			for _, m := range c.nodes {
				if m.host.Awake() > 0 {
					return false
				}
			}
			return true
		})
	})
}
