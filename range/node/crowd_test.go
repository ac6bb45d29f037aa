package node

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// Campaigns keep their pace when the groups come one by one, and each is looked at before the next
// one comes.
func TestCampaignsKeepThePaceOfGroupsThatTrickle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const perPeriod, groups = 5, 42
		began := time.Now()
		n := &Node{base: &hosted.Node{Now: func() int64 { return int64(time.Since(began)) }}}
		n.config.CampaignsPerSecond = perPeriod * int(time.Second/campaignPeriod)
		n.elections.init(n)
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { n.elections.run(ctx) })
		var all []*hosted.Replica
		lookedAt := func() (n int) {
			synctest.Wait()
			for _, h := range all {
				if !h.Lists.Elections.Load() {
					n++
				}
			}
			return n
		}
		for range groups {
			h := &hosted.Replica{}
			h.Removed.Store(true) // nothing else is done about it
			all = append(all, h)
			n.elections.add(h, n.base.Now())
			lookedAt()
		}
		before := lookedAt()
		if before > perPeriod {
			t.Errorf("%d were looked at at once, the pace is %d", before, perPeriod)
		}
		for before < groups {
			time.Sleep(campaignPeriod) // virtual
			now := lookedAt()
			if now-before > perPeriod || now == before {
				t.Fatalf("%d were looked at, and a period before %d; the pace is %d",
					now, before, perPeriod)
			}
			before = now
		}
		cancel()
		running.Wait()
	})
}

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
		if limit := busyGroups + 3*500 + 500; most > limit {
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
