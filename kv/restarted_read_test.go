package kv

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A count over several partitions that begins anew is counted, by why.
func TestReadsThatBeginAnewAreCounted(t *testing.T) {
	for why, disturb := range map[string]func(c *fakeCluster, id uint32){
		"leader": func(c *fakeCluster, id uint32) {
			p := c.partitionOf(id, "key00007")
			c.lead(p, p.next(), false)
		},
		"uncertain": func(c *fakeCluster, _ uint32) {
			first := true
			c.play(func(_ *fakeNode, r *kvpb.Request) fault {
				if r.GetCount() == nil || !first {
					return fault{}
				}
				first = false
				return fault{code: kvpb.ErrorCode_UNCERTAIN}
			})
		},
	} {
		t.Run(why, func(t *testing.T) {
			inBubble(t, 3, func(t *testing.T, c *fakeCluster) {
				id := c.addKeyspace("k", 4)
				registry := prometheus.NewRegistry()
				client := c.open(WithMetrics(registry))
				defer client.Close()
				ks := client.Keyspace("k")
				fill(t, ks, 100)
				restarts := func() map[string]float64 {
					counted := make(map[string]float64)
					for _, f := range must[[]*dto.MetricFamily](t)(registry.Gather()) {
						if f.GetName() == "tidemark_client_read_restarts_total" {
							for _, m := range f.Metric {
								counted[m.Label[0].GetValue()] = m.GetCounter().GetValue()
							}
						}
					}
					return counted
				}
				count := func() {
					if n := must[uint64](t)(ks.Count(t.Context())); n != 100 {
						t.Errorf("counted %d", n)
					}
				}
				count()
				if before := restarts(); len(before) != 0 {
					t.Errorf("a read that nothing disturbs: %v", before)
				}
				disturb(c, id)
				count()
				if after := restarts(); len(after) != 1 || after[why] < 1 {
					t.Errorf("counted %v", after)
				}
			})
		})
	}
}
