package node

import (
	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	heartbeats, heartbeatsFailed, reports   prometheus.Counter
	streams, created, born, removed, failed prometheus.Counter
	merged, mergedBySnapshot, mergesGivenUp prometheus.Counter
	campaigns, transfers, refused, flushes  prometheus.Counter
	ordersDone                              prometheus.Counter
	ahead                                   prometheus.Counter
	clockJumps                              prometheus.Counter
	collections, collected, collectFailures prometheus.Counter
	givenBack                               prometheus.Counter
	divisions                               prometheus.Counter
	broken, revision, unfit, leaderless     prometheus.Gauge
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
	m.campaigns = counter("campaigns_total", "Times that a group without a leader was woken.")
	m.ordersDone = counter("replica_changes_total", "Changes of partitions' replicas that were made.")
	m.transfers = counter("leader_transfers_total", "Leaderships handed to other replicas.")
	m.refused = counter("requests_refused_total", "Requests that no replica here was asked.")
	m.ahead = counter("future_timestamp_requests_total", "Requests that waited, or were refused, "+
		"because they named timestamps too far ahead of this server's clock.")
	m.clockJumps = counter("clock_jumps_total", "Jumps of this server's clock beyond the maximum "+
		"offset, and smaller steps that took it too far from a peer's.")
	m.flushes = counter("state_flushes_total", "Flushes of the state that were asked for because "+
		"much was not durable.")
	m.divisions = counter("split_searches_total", "Times that the middle of a large partition was "+
		"looked for.")
	m.collections = counter("gc_runs_total", "Garbage collections of a partition.")
	m.collected = counter("gc_versions_total", "Versions removed by garbage collection.")
	m.collectFailures = counter("gc_failures_total", "Garbage collections that failed.")
	m.givenBack = counter("gc_compactions_total", "Compactions of a partition on a disk without "+
		"room, after which the disk has the room of what garbage collection has removed.")
	n.reconciler.disk.hangs = counter("replica_changes_stalled_total",
		"Times that creating or removing "+
			"replicas had waited for the disk for 30 s.")
	m.broken = gauge("broken_replicas", "Replicas on disk that do not open.")
	m.leaderless = gauge("leaderless_partitions", "Partitions with a replica here that have had "+
		"no leader for 10 s.")
	m.revision = gauge("table_revision", "Revision of the core that the partition table has "+
		"reached.")
	m.unfit = gauge("unhealthy", "1 while this node serves nothing, because of its clock or its disk.")
	gaugeOf("replicas", "Replicas held.", func() float64 { return float64(len(n.replicas.All())) })
	gaugeOf("leaders", "Groups led.", func() float64 { return float64(n.leaders.Count()) })
	gaugeOf("misplaced_leaders", "Groups led here that another node should lead.",
		func() float64 { return float64(len(n.leaders.Misplaced())) })
	gaugeOf("gc_pending_partitions", "Partitions that wait for garbage collection.",
		func() float64 { return float64(n.collector.waiting()) })
	gaugeOf("clock_offset_seconds", "Largest offset of a peer's clock from this one, with its "+
		"sign.", func() float64 {
		worst := 0.0
		for _, o := range n.host.Clocks().Offsets() {
			if s := o.Seconds(); s*s > worst*worst {
				worst = s
			}
		}
		return worst
	})
	gaugeOf("clock_bound_seconds", "How far this server's clock may be from true time: as "+
		"configured, or as the kernel says. Commit wait takes about as long.",
		func() float64 { return n.config.Clock.MaxError().Seconds() })
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
