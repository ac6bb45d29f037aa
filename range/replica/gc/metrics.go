package gc

import "github.com/prometheus/client_golang/prometheus"

// Metrics are shared by all Collectors of a node.
type Metrics struct {
	removed, expired                   prometheus.Counter
	recordsCollected, recordsUnsettled prometheus.Counter
}

// NewMetrics returns metrics, and the collectors to register.
func NewMetrics() (*Metrics, []prometheus.Collector) {
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_" + name, Help: help})
		all = append(all, c)
		return c
	}
	m := &Metrics{
		removed: counter("replica_gc_removed_versions_total",
			"Versions removed by garbage collection, counted on the leader."),
		expired: counter("replica_gc_expired_keys_total",
			"Keys whose value had expired and was removed by garbage collection, counted on the leader."),
		recordsCollected: counter("txn_records_collected_total",
			"Records of transactions that nothing can need any more, and were removed."),
		recordsUnsettled: counter("txn_records_kept_total",
			"Records of committed transactions not collected yet because a partition they wrote to did "+
				"not answer."),
	}
	return m, all
}
