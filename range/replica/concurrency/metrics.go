package concurrency

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Metrics are what the managers of a node count together.
type Metrics struct {
	// locks counts locks on all replicas, including followers.
	locks prometheus.Gauge
	// spanLocks counts span locks, which only leaders hold.
	spanLocks                 prometheus.Gauge
	spanWaits                 prometheus.Counter
	lockWaits                 prometheus.Histogram
	writesWaited, readsWaited prometheus.Counter
	// pushes is indexed by PushRequest_Kind.
	pushes                                       [3]prometheus.Counter
	pushesCommitted, pushesAborted, pushesFailed prometheus.Counter
	sweeps, orphans                              prometheus.Counter
}

// NewMetrics makes the metrics. The caller registers the collectors.
func NewMetrics() (m *Metrics, collectors []prometheus.Collector) {
	m = &Metrics{}
	name := func(name string) string { return "tidemark_txn_" + name }
	vector := func(metric, label, help string) *prometheus.CounterVec {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name(metric), Help: help},
			[]string{label})
		collectors = append(collectors, v)
		return v
	}
	counter := func(metric, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name(metric), Help: help})
		collectors = append(collectors, c)
		return c
	}
	gauge := func(metric, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: name(metric), Help: help})
		collectors = append(collectors, g)
		return g
	}
	m.locks = gauge("locks", "Keys locked by transactions, on all replicas of this node.")
	m.spanLocks = gauge("span_locks",
		"Spans held by transactions in the partitions that this node leads.")
	m.spanWaits = counter("span_lock_waits_total",
		"Requests that waited for a span that a transaction held.")
	m.lockWaits = prometheus.NewHistogram(prometheus.HistogramOpts{Name: name("lock_wait_seconds"),
		Help:    "For how long requests waited for a lock.",
		Buckets: prometheus.ExponentialBuckets(1e-4, 4, 10)})
	collectors = append(collectors, m.lockWaits)
	waits := vector("lock_waits_total", "what", "Requests that waited for a lock.")
	m.writesWaited, m.readsWaited = waits.WithLabelValues("write"), waits.WithLabelValues("read")
	pushes := vector("pushes_total", "kind",
		"Questions to coordinators about transactions in the way, by what was wanted.")
	for k := range m.pushes {
		m.pushes[k] = pushes.WithLabelValues(strings.ToLower(kvpb.PushRequest_Kind(k).String()))
	}
	outcomes := vector("push_outcomes_total", "outcome",
		"Answers of coordinators that are no longer pending, and questions without an answer.")
	m.pushesCommitted = outcomes.WithLabelValues("committed")
	m.pushesAborted = outcomes.WithLabelValues("aborted")
	m.pushesFailed = outcomes.WithLabelValues("failed")
	m.sweeps = counter("stale_lock_checks_total",
		"Coordinators asked about transactions whose locks were old, although nothing waited for them.")
	m.orphans = counter("orphans_total",
		"Transactions taken for aborted because the keyspace that held their outcome was dropped.")
	return m, collectors
}
