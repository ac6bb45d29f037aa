package replica

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// transactionMetrics are what a node's replicas count of transactions.
type transactionMetrics struct {
	// pushes is by PushRequest_Kind.
	pushes                         [3]prometheus.Counter
	pushesFailed                   prometheus.Counter
	pushesCommitted, pushesAborted prometheus.Counter
	// locks counts them on all replicas, followers too.
	locks prometheus.Gauge
	// spanLocks are held by leaders only.
	spanLocks               prometheus.Gauge
	spanWaits, spansRefused prometheus.Counter
	lockWaits               prometheus.Histogram
	writesParked            prometheus.Counter
	readsParked             prometheus.Counter
	// readsMoved is by why a read was served at a later timestamp.
	readsMovedUncertain, readsMovedCommit, readsMovedCollected prometheus.Counter
	// aborts is by AbortReason, counted at the coordinator.
	aborts                                  [7]prometheus.Counter
	onePhase, twoPhase                      prometheus.Counter
	conflicts                               prometheus.Counter
	sweeps                                  prometheus.Counter
	locksCommitted, locksAborted, locksLate prometheus.Counter
	commitWaits                             prometheus.Histogram
	readsHeld, orphans, writesUnwanted      prometheus.Counter
	// refusedStarts counts requests of transactions that began too long ago.
	refusedStarts                      prometheus.Counter
	recordsCollected, recordsUnsettled prometheus.Counter
}

func (m *transactionMetrics) init(collectors *[]prometheus.Collector) {
	name := func(name string) string { return "tidemark_txn_" + name }
	vector := func(metric, label, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(metric), Help: help}, []string{label})
		*collectors = append(*collectors, v)
		return v
	}
	counter := func(metric, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name(metric), Help: help})
		*collectors = append(*collectors, c)
		return c
	}
	histogram := func(metric, help string) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: name(metric), Help: help, Buckets: prometheus.ExponentialBuckets(1e-4, 4, 10)})
		*collectors = append(*collectors, h)
		return h
	}
	pushes := vector("pushes_total", "kind", "Questions to coordinators about transactions in the way, by what was wanted.")
	for k := range m.pushes {
		m.pushes[k] = pushes.WithLabelValues(strings.ToLower(kvpb.PushRequest_Kind(k).String()))
	}
	outcomes := vector("push_outcomes_total", "outcome", "Answers of coordinators that are no longer pending, and questions without an answer.")
	m.pushesCommitted, m.pushesAborted, m.pushesFailed = outcomes.WithLabelValues("committed"), outcomes.WithLabelValues("aborted"), outcomes.WithLabelValues("failed")
	m.locks = prometheus.NewGauge(prometheus.GaugeOpts{Name: name("locks"), Help: "Keys locked by transactions, on all replicas of this node."})
	*collectors = append(*collectors, m.locks)
	m.spanLocks = prometheus.NewGauge(prometheus.GaugeOpts{Name: name("span_locks"), Help: "Spans held by transactions in the partitions that this node leads."})
	*collectors = append(*collectors, m.spanLocks)
	m.spanWaits = counter("span_lock_waits_total", "Requests that waited for a span that a transaction held.")
	m.spansRefused = counter("span_locks_refused_total", "Requests to hold spans that were answered without, because too many were held.")
	m.lockWaits = histogram("lock_wait_seconds", "For how long requests waited for a lock.")
	waits := vector("lock_waits_total", "what", "Requests that waited for a lock.")
	m.writesParked, m.readsParked = waits.WithLabelValues("write"), waits.WithLabelValues("read")
	m.writesUnwanted = counter("lock_waits_unwanted_total", "Requests for locks that had waited for another one, and were given up because their client was not connected any more.")
	moved := vector("read_restarts_total", "why", "Reads that the server itself moved to a later timestamp.")
	m.readsMovedUncertain, m.readsMovedCommit = moved.WithLabelValues("uncertain"), moved.WithLabelValues("commit")
	m.readsMovedCollected = moved.WithLabelValues("collected")
	aborts := vector("aborts_total", "reason", "Transactions aborted here as their coordinator.")
	for r := range m.aborts {
		m.aborts[r] = aborts.WithLabelValues(strings.ToLower(kvpb.AbortReason(r).String()))
	}
	commits := vector("commits_total", "phases", "Transactions committed here, in one phase or as the coordinator of two.")
	m.onePhase, m.twoPhase = commits.WithLabelValues("one"), commits.WithLabelValues("two")
	m.refusedStarts = counter("refused_starts_total", "Requests refused because their transaction, or its attempt, began longer ago than its keyspace allows.")
	m.conflicts = counter("conflicts_total", "Transactions that have to run again because what they read has changed.")
	m.sweeps = counter("sweeps_total", "Transactions asked about because their locks were old, and nobody waited for them.")
	resolved := vector("locks_resolved_total", "outcome", "Locks ended, by what became of them; late ones were laid after their transaction was over.")
	m.locksCommitted, m.locksAborted, m.locksLate = resolved.WithLabelValues("committed"), resolved.WithLabelValues("aborted"), resolved.WithLabelValues("late")
	m.orphans = counter("orphans_total", "Transactions taken for aborted because the keyspace that held their outcome was dropped.")
	m.readsHeld = counter("reads_held_total", "Reads that saw a commit with commit wait before every clock had passed it, and waited.")
	m.recordsCollected = counter("records_collected_total", "Records of transactions that nobody can need any more, and were removed.")
	m.recordsUnsettled = counter("records_kept_total", "Records of committed transactions not collected yet because a partition they wrote to did not answer.")
	m.commitWaits = histogram("commit_wait_seconds", "For how long commits, and reads that saw them, waited for every clock to pass their timestamps.")
}
