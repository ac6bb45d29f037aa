package host

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/group"
)

type metrics struct {
	groups                                 prometheus.Gauge
	failed, elected, dropped, misaddressed prometheus.Counter
	inboxFull, pauses, gone                prometheus.Counter
	refusedAppends                         prometheus.Counter
	appliedEntries                         prometheus.Counter
	snapshotsSent, snapshotsFailed         prometheus.Counter
	snapshotsReceived, snapshotsInstalled  prometheus.Counter
	applySeconds                           prometheus.Histogram
	refused                                map[group.Refusal]prometheus.Counter
}

func newMetrics(r prometheus.Registerer) *metrics {
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_host_" + name, Help: help})
	}
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_host_" + name,
			Help: help})
	}
	m := &metrics{
		groups:  gauge("groups", "Groups with a replica here."),
		failed:  counter("failed_groups_total", "Replicas that failed; see the log for why."),
		elected: counter("elections_won_total", "Elections that a replica here won."),
		dropped: counter("dropped_proposals_total", "Proposals dropped because the "+
			"leadership they were made for was over."),
		misaddressed: counter("misaddressed_messages_total", "Messages for a replica that is not "+
			"here."),
		inboxFull: counter("inbox_full_total", "Messages dropped because a group's inbox, or "+
			"all together, or what waits for the log, was full."),
		refusedAppends: counter("refused_appends_total",
			"Messages with entries that were not taken because the disk is below its reserve; "+
				"the leader sends them again."),
		pauses: counter("pauses_total", "Times the process was paused for an "+
			"election timeout or more."),
		gone: counter("peers_gone_total", "Times that the process of another server was found to "+
			"be gone: its machine refused connections, and nothing was heard of it."),
		appliedEntries:     counter("applied_entries_total", "Entries applied."),
		snapshotsSent:      counter("snapshots_sent_total", "Snapshots sent."),
		snapshotsFailed:    counter("snapshots_failed_total", "Snapshots that could not be sent."),
		snapshotsReceived:  counter("snapshots_received_total", "Snapshots received and verified."),
		snapshotsInstalled: counter("snapshots_installed_total", "Snapshots installed."),
		applySeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_host_apply_seconds", Help: "Time to apply what was committed together.",
			Buckets: prometheus.ExponentialBuckets(10e-6, 2, 16)}),
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_host_messages_refused_total", Help: "Messages of peers that were refused " +
			"because they cannot be."}, []string{"reason"})
	m.refused = make(map[group.Refusal]prometheus.Counter, len(group.Refusals))
	for _, why := range group.Refusals {
		m.refused[why] = refused.WithLabelValues(string(why))
	}
	if r != nil {
		r.MustRegister(refused)
		r.MustRegister(
			m.groups,
			m.failed,
			m.elected,
			m.dropped,
			m.misaddressed,
			m.inboxFull,
			m.refusedAppends,
			m.pauses,
			m.gone,
			m.appliedEntries,
			m.snapshotsSent,
			m.snapshotsFailed,
			m.snapshotsReceived,
			m.snapshotsInstalled,
			m.applySeconds,
		)
	}
	return m
}

// registerGauges registers the gauges that are computed when metrics are collected, which may
// happen at any moment from now on.
func (h *Host) registerGauges(r prometheus.Registerer) {
	if r == nil {
		return
	}
	gauge := func(name, help string, value func() float64) {
		r.MustRegister(prometheus.NewGaugeFunc(
			prometheus.GaugeOpts{Name: "tidemark_host_" + name, Help: help}, value))
	}
	gauge("awake_groups", "Groups that are awake.", func() float64 {
		return float64(h.awake.Load())
	})
	gauge("peers", "Hosts that share a group with this one, and are pinged.", func() float64 {
		all, _ := h.peers.Count()
		return float64(all)
	})
	gauge("disk_slow", "1 while the log takes many times longer to sync than those of peers, so "+
		"that leaderships are left to them.", func() float64 {
		if h.slowness.slow.Load() {
			return 1
		}
		return 0
	})
	gauge("processor_wait_seconds", "How long the process waits for a processor at present: the "+
		"median of the latest tick of each of the last seconds; 0: not known.", func() float64 {
		return h.ProcessorWait().Seconds()
	})
	gauge("round_trip_seconds", "How long a message takes to half of the peers and back, or less; "+
		"0: not known.", func() float64 { return h.usualRoundTrip().Seconds() })
}
