package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	heartbeats, heartbeatsFailed, reports   prometheus.Counter
	streams, created, born, removed, failed prometheus.Counter
	merged, mergedBySnapshot, mergesGivenUp prometheus.Counter
	refused                                 prometheus.Counter
	ordersDone                              prometheus.Counter
	givenBack                               prometheus.Counter
	divisions                               prometheus.Counter
	broken, revision, unfit                 prometheus.Gauge
}

func newMetrics(n *Node) *metrics {
	m, counter, gauge := &metrics{}, n.base.Metrics.Counter, n.base.Metrics.Gauge
	gaugeOf := n.base.Metrics.GaugeOf
	m.heartbeats = counter("heartbeats_total", "Heartbeats that the core answered.")
	m.heartbeatsFailed = counter("heartbeats_failed_total", "Heartbeats that the core did not "+
		"answer.")
	m.reports = counter("partition_reports_total", "Reports of partitions sent with heartbeats.")
	m.streams = counter("metadata_streams_total", "Metadata streams that ended.")
	m.created = counter("replicas_created_total", "Replicas created.")
	m.born = counter("split_replicas_total", "Replicas made by splits.")
	m.removed = counter("replicas_removed_total", "Replicas removed.")
	m.merged = counter("replicas_merged_total", "Replicas that became a part of others by merges.")
	m.mergedBySnapshot = counter("replicas_merged_by_snapshot_total", "Replicas that became a part "+
		"of others by snapshots from after the merges.")
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
	n.reconciler.disk.hangs = counter("replica_changes_stalled_total",
		"Times that creating or removing "+
			"replicas had waited for the disk for 30 s.")
	m.broken = gauge("broken_replicas", "Replicas on disk that do not open.")
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
