package leadership

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
		e := NewElections(&hosted.Node{Metrics: hosted.NewMetrics(nil),
			Now: func() int64 { return int64(time.Since(began)) }}, time.Second,
			perPeriod*int(time.Second/campaignPeriod))
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { e.Run(ctx) })
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
			e.Add(h)
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
