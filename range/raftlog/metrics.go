package raftlog

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	batches      prometheus.Counter
	appends      prometheus.Counter
	entries      prometheus.Counter
	bytes        prometheus.Counter
	batchAppends prometheus.Histogram
	syncSeconds  prometheus.Histogram
	truncations  prometheus.Counter
	diskReads    prometheus.Counter
}

func newMetrics(r prometheus.Registerer, pending func() float64) *metrics {
	m := &metrics{
		batches: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_raftlog_batches_total",
			Help: "Synced batches written to the raft log."}),
		appends: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_raftlog_appends_total", Help: "Appends of single groups; divided by " +
				"the batches, how many groups share a sync."}),
		entries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_raftlog_entries_total", Help: "Raft entries written."}),
		bytes: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_raftlog_written_bytes_total", Help: "Bytes of entries written."}),
		batchAppends: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_raftlog_batch_appends", Help: "Appends in one synced batch.",
			Buckets: prometheus.ExponentialBuckets(1, 2, 11)}),
		syncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "tidemark_raftlog_sync_seconds", Help: "Time to write and sync one batch.",
			Buckets: prometheus.ExponentialBuckets(50e-6, 2, 16)}),
		truncations: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_raftlog_truncations_total", Help: "Truncations of a group's log."}),
		diskReads: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_raftlog_disk_reads_total", Help: "Reads of entries that were no " +
				"longer in memory."}),
	}
	if r != nil {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "tidemark_raftlog_pending_bytes", Help: "Bytes of all groups that wait for the " +
				"log, or are being written to it."}, pending))
		r.MustRegister(m.batches, m.appends, m.entries, m.bytes, m.batchAppends, m.syncSeconds,
			m.truncations, m.diskReads)
	}
	return m
}
