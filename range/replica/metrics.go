package replica

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// outcomes: 0 is success, 1 + code is an error.
const outcomeCount = 2 + int(kvpb.ErrorCode_LOCKED)

// Metrics are the counters that the replicas of a node share. There are none per partition: a node
// holds ten thousand.
type Metrics struct {
	commands [][outcomeCount]prometheus.Counter

	entryWrites    prometheus.Histogram
	entryBytes     prometheus.Histogram
	applySeconds   prometheus.Histogram
	applyEntries   prometheus.Counter
	readsLease     prometheus.Counter
	readsReadIndex prometheus.Counter
	readsWaited    prometheus.Counter
	readsRestarted prometheus.Counter
	readsEarly     prometheus.Counter
	proposals      prometheus.Gauge
	queued         prometheus.Gauge
	pendingWrites  prometheus.Gauge
	duplicates     prometheus.Counter
	rejected       prometheus.Counter
	removed        prometheus.Counter
	snapshots      prometheus.Counter
	failures       prometheus.Counter

	// locking are the concurrency managers'.
	locking *concurrency.Metrics
	transactionMetrics
}

// NewMetrics makes the metrics and registers them, if registerer is not nil. Registering twice
// panics, as with prometheus.MustRegister.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{}
	var collectors []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_replica_" + name, Help: help})
		collectors = append(collectors, c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_replica_" + name, Help: help})
		collectors = append(collectors, g)
		return g
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "tidemark_replica_" + name,
			Help: help, Buckets: buckets})
		collectors = append(collectors, h)
		return h
	}
	commands := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_replica_commands_total", Help: "Requests answered, by command and outcome.",
	}, []string{"command", "outcome"})
	collectors = append(collectors, commands)
	m.commands = make([][outcomeCount]prometheus.Counter, len(command.All()))
	for c, known := range command.All() {
		for o := range m.commands[c] {
			name := "ok"
			if o > 0 {
				name = strings.ToLower(kvpb.ErrorCode(o - 1).String())
			}
			m.commands[c][o] = commands.WithLabelValues(known.Name, name)
		}
	}
	m.entryWrites = histogram("entry_writes", "Writes that share one Raft entry.",
		prometheus.ExponentialBuckets(1, 2, 12))
	m.entryBytes = histogram("entry_bytes", "Bytes in one Raft entry.",
		prometheus.ExponentialBuckets(64, 4, 10))
	m.applySeconds = histogram("apply_seconds",
		"Duration of one Apply call, on leaders and followers.",
		prometheus.ExponentialBuckets(1e-6, 4, 12))
	m.applyEntries = counter("applied_entries_total", "Raft entries applied.")
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_replica_reads_total", Help: "Reads served, by what proved leadership.",
	}, []string{"path"})
	collectors = append(collectors, reads)
	m.readsLease = reads.WithLabelValues("lease")
	m.readsReadIndex = reads.WithLabelValues("read_index")
	m.readsWaited = counter("reads_waited_total", "Reads that waited for a write in flight.")
	m.readsEarly = counter("reads_early_total",
		"Reads refused because they were further ahead of the clock than the leader's lease lasted; "+
			"clients send them again.")
	m.readsRestarted = counter("uncertainty_restarts_total",
		"Reads moved up to the timestamp of a version from a faster clock.")
	m.proposals = gauge("proposals_in_flight", "Entries proposed and not yet applied.")
	m.queued = gauge("queued_writes", "Writes that wait for evaluation.")
	m.pendingWrites = gauge("pending_writes", "Writes that are evaluated and not yet applied.")
	m.duplicates = counter("duplicates_total",
		"Retries that found their own request id and were not applied again.")
	m.rejected = counter("rejected_entries_total",
		"Entries without effect, because one that they were evaluated on was lost.")
	m.removed = counter("gc_removed_versions_total",
		"Versions removed by garbage collection, counted on the leader.")
	m.snapshots = counter("snapshots_installed_total", "Snapshots installed.")
	m.failures = counter("failures_total", "Replicas marked failed.")
	m.transactionMetrics.init(&collectors)
	locking, more := concurrency.NewMetrics()
	m.locking, collectors = locking, append(collectors, more...)
	if registerer != nil {
		registerer.MustRegister(collectors...)
	}
	return m
}

// answered counts a response.
func (m *Metrics) answered(c *command.Command, response *kvpb.Response) {
	outcome := 0
	if response.Error != nil {
		outcome = 1 + int(response.Error.Code)
		if outcome < 0 || outcome >= outcomeCount {
			outcome = 1
		}
	}
	m.commands[c.Index()][outcome].Inc()
}
