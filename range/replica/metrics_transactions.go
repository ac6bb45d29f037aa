package replica

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// transactionMetrics are what a node's replicas count of transactions.
type transactionMetrics struct {
	spansRefused prometheus.Counter
	// readsMoved is by why a read was served at a later timestamp.
	readsMovedUncertain, readsMovedCommit, readsMovedCollected prometheus.Counter
	// aborts is by AbortReason, counted at the coordinator.
	aborts                                  [7]prometheus.Counter
	onePhase, twoPhase                      prometheus.Counter
	conflicts                               prometheus.Counter
	locksCommitted, locksAborted, locksLate prometheus.Counter
	commitWaits                             prometheus.Histogram
	readsHeld, disconnected                 prometheus.Counter
	// refusedStarts counts requests of transactions that began too long ago.
	refusedStarts                      prometheus.Counter
	recordsCollected, recordsUnsettled prometheus.Counter
}

func (m *transactionMetrics) init(collectors *[]prometheus.Collector) {
	name := func(name string) string { return "tidemark_txn_" + name }
	vector := func(metric, label, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(metric), Help: help},
			[]string{label})
		*collectors = append(*collectors, v)
		return v
	}
	counter := func(metric, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name(metric), Help: help})
		*collectors = append(*collectors, c)
		return c
	}
	histogram := func(metric, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name(metric), Help: help,
			Buckets: prometheus.ExponentialBuckets(1e-4, 4, 10)})
		*collectors = append(*collectors, h)
		return h
	}
	m.spansRefused = counter("span_locks_refused_total",
		"Requests to hold spans that were answered without, because too many were held.")
	m.disconnected = counter("lock_waits_disconnected_total",
		"Requests for locks that had waited for another one, and were given up because their client "+
			"was not connected any more.")
	moved := vector("read_restarts_total", "why",
		"Reads that the server itself moved to a later timestamp.")
	m.readsMovedUncertain = moved.WithLabelValues("uncertain")
	m.readsMovedCommit = moved.WithLabelValues("commit")
	m.readsMovedCollected = moved.WithLabelValues("collected")
	aborts := vector("aborts_total", "reason", "Transactions aborted here as their coordinator.")
	for r := range m.aborts {
		m.aborts[r] = aborts.WithLabelValues(strings.ToLower(kvpb.AbortReason(r).String()))
	}
	commits := vector("commits_total", "phases",
		"Transactions committed here, in one phase or as the coordinator of two.")
	m.onePhase, m.twoPhase = commits.WithLabelValues("one"), commits.WithLabelValues("two")
	m.refusedStarts = counter("refused_starts_total",
		"Requests refused because their transaction, or its attempt, began longer ago than its "+
			"keyspace allows.")
	m.conflicts = counter("conflicts_total",
		"Transactions that have to run again because what they read has changed.")
	resolved := vector("locks_resolved_total", "outcome",
		"Locks ended, by what became of them; late ones were acquired after their transaction was over.")
	m.locksCommitted = resolved.WithLabelValues("committed")
	m.locksAborted = resolved.WithLabelValues("aborted")
	m.locksLate = resolved.WithLabelValues("late")
	m.readsHeld = counter("reads_held_total",
		"Reads that saw a commit with commit wait before every clock had passed it, and waited.")
	m.recordsCollected = counter("records_collected_total",
		"Records of transactions that nobody can need any more, and were removed.")
	m.recordsUnsettled = counter("records_kept_total",
		"Records of committed transactions not collected yet because a partition they wrote to did not "+
			"answer.")
	m.commitWaits = histogram("commit_wait_seconds",
		"For how long commits, and reads that saw them, waited for every clock to pass their timestamps.")
}
