package quotas

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Usage returns how much of its quotas a keyspace uses. It returns nil if the keyspace has no
// quota, or if the usage is not known yet.
func (q *Quotas) Usage(id keys.KeyspaceID) *clusterpb.KeyspaceUsage {
	q.mu.Lock()
	defer q.mu.Unlock()
	ks := q.mu.keyspaces[id]
	if ks == nil || ks.size != 0 && !ks.known {
		return nil
	}
	return ks.usage(q.now())
}

// usage returns the used amounts of the quotas that the keyspace has.
func (ks *keyspace) usage(now int64) *clusterpb.KeyspaceUsage {
	ks.forget(now)
	u := &clusterpb.KeyspaceUsage{Bytes: ks.used}
	if ks.requests != 0 {
		u.RequestsPerSecond = ks.sum.requests
	}
	if ks.bytes != 0 {
		u.BytesPerSecond = ks.sum.bytes
	}
	return u
}

var ratio = prometheus.NewDesc("tidemark_core_keyspace_quota_used_ratio",
	"What is used of a quota of a keyspace, as a part of the quota: of the bytes that are stored, or "+
		"of the requests or the bytes a second that clients ask for. 1: the quota is reached. Only of "+
		"keyspaces with quotas, and only on the leader of the core.",
	[]string{"keyspace", "quota"}, nil)

// Describe implements prometheus.Collector.
func (q *Quotas) Describe(ch chan<- *prometheus.Desc) { ch <- ratio }

// Collect implements prometheus.Collector.
func (q *Quotas) Collect(ch chan<- prometheus.Metric) {
	q.mu.Lock()
	defer q.mu.Unlock()
	now := q.now()
	for _, ks := range q.mu.keyspaces {
		u := ks.usage(now)
		for _, x := range []struct {
			name        string
			used, quota uint64
			known       bool
		}{
			{"bytes", u.Bytes, ks.size, ks.known},
			{"requests", u.RequestsPerSecond, ks.requests, true},
			{"throughput", u.BytesPerSecond, ks.bytes, true},
		} {
			if x.quota != 0 && x.known {
				ch <- prometheus.MustNewConstMetric(ratio, prometheus.GaugeValue,
					float64(x.used)/float64(x.quota), ks.name, x.name)
			}
		}
	}
}
