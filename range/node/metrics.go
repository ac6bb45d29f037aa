package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	streams, failed prometheus.Counter
	mergesGivenUp   prometheus.Counter
	refused         prometheus.Counter
	ordersDone      prometheus.Counter
	givenBack       prometheus.Counter
	divisions       prometheus.Counter
	revision, unfit prometheus.Gauge
}

func newMetrics(n *Node) *metrics {
	m, counter, gauge := &metrics{}, n.base.Metrics.Counter, n.base.Metrics.Gauge
	gaugeOf := n.base.Metrics.GaugeOf
	m.streams = counter("metadata_streams_total", "Metadata streams that ended.")
	m.mergesGivenUp = counter("merges_given_up_total", "Attempts to merge partitions that "+
		"were given up.")
	m.failed = counter("replicas_failed_total", "Replicas that failed while they ran; see the "+
		"log for why.")
	m.ordersDone = counter("replica_changes_total", "Changes of partitions' replicas that were made.")
	m.refused = counter("requests_refused_total", "Requests that no replica here was asked.")
	m.divisions = counter("split_searches_total", "Times that the middle of a large partition was "+
		"looked for.")
	m.givenBack = counter("gc_compactions_total", "Compactions of a partition on a disk without "+
		"room, after which the disk has the room of what garbage collection has removed.")
	m.revision = gauge("table_revision", "Revision of the core that the partition table has "+
		"reached.")
	m.unfit = gauge("unhealthy", "1 while this node serves nothing, because of its clock or its disk.")
	gaugeOf("replicas", "Replicas held.", func() float64 { return float64(len(n.replicas.All())) })
	gaugeOf("leaders", "Groups led.", func() float64 { return float64(n.leaders.Count()) })
	gaugeOf("quiesced_closed_ts", "Quiesced groups with a leader here, whose closed timestamps "+
		"advance together.", func() float64 {
		groups, _ := n.host.SleepingClosed()
		return float64(groups)
	})
	n.base.Metrics.Add(newClosedLag(n))
	return m
}

func (m *metrics) setUnfit(unfit bool) {
	value := 0.0
	if unfit {
		value = 1
	}
	m.unfit.Set(value)
}
