package replica

import (
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/mvcc/vacant"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/gc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// outcomes: 0 is success, 1 + code is an error.
const outcomeCount = 2 + int(kvpb.ErrorCode_ACCESS_UNKNOWN)

// Metrics are the counters that the replicas of a node share. There are none per partition: a node
// holds ten thousand.
type Metrics struct {
	commands [][outcomeCount]prometheus.Counter

	entryWrites    prometheus.Histogram
	entryBytes     prometheus.Histogram
	applySeconds   prometheus.Histogram
	applyEntries   prometheus.Counter
	readsLease     prometheus.Counter
	readsClosed    prometheus.Counter
	readsAdmitted  prometheus.Counter
	admissions     prometheus.Counter
	readsNotClosed prometheus.Counter
	readsReadIndex prometheus.Counter
	changes        prometheus.Counter
	changesLag     prometheus.Histogram
	readsWaited    prometheus.Counter
	readsRestarted prometheus.Counter
	readsEarly     prometheus.Counter
	proposals      prometheus.Gauge
	queued         prometheus.Gauge
	pendingWrites  prometheus.Gauge
	duplicates     prometheus.Counter
	rejected       prometheus.Counter
	// vacant is of all memories of spans without values; nil until the node is prepared.
	vacant         atomic.Pointer[vacant.Budget]
	evaluatedLater prometheus.Counter
	snapshots      prometheus.Counter
	failures       prometheus.Counter

	// locking are the concurrency managers'.
	gc      *gc.Metrics
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
		Name: "tidemark_replica_reads_total", Help: "Reads served, by what proved that they are " +
			"right: a lease, a read index, that their timestamp is closed, so that any replica serves " +
			"them, or that a leader has admitted them.",
	}, []string{"path"})
	collectors = append(collectors, reads)
	m.readsLease = reads.WithLabelValues("lease")
	m.readsClosed = reads.WithLabelValues("closed")
	m.readsAdmitted = reads.WithLabelValues("admission")
	m.admissions = counter("reads_admitted_total",
		"Reads that a leader admitted for another replica to read: it proved its leadership and chose "+
			"their timestamps, and read nothing.")
	m.readsNotClosed = counter("follower_reads_redirected_total",
		"Reads that a replica left to the leader: their timestamp was not closed, a lock was in the "+
			"way, or it had not applied what they were admitted at.")
	m.changes = counter("feed_changes_total", "Versions that answers to change feeds brought.")
	m.changesLag = histogram("feed_lag_seconds",
		"How far behind the clock what was resolved for a change feed was, for each answer.",
		prometheus.ExponentialBuckets(0.01, 2, 14))
	m.readsReadIndex = reads.WithLabelValues("read_index")
	m.readsWaited = counter("reads_waited_total", "Reads that waited for a write in flight.")
	m.readsEarly = counter("reads_beyond_lease_total",
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
	vacantKeys := func(name, help string, of func(*vacant.Budget) uint64) {
		collectors = append(collectors, prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "tidemark_replica_" + name, Help: help}, func() float64 {
				if b := m.vacant.Load(); b != nil {
					return float64(of(b))
				}
				return 0
			}))
	}
	vacantKeys("tombstones_skipped_total", "Keys without a value that scans did not walk over, "+
		"because the replica knew that their span has none.", (*vacant.Budget).Passed)
	vacantKeys("tombstones_scanned_total", "Keys without a value that scans walked over, and whose "+
		"span the replica remembers since.", (*vacant.Budget).Walked)
	m.evaluatedLater = counter("reevaluations_total",
		"Writes evaluated again because what they had found expired before they took effect.")
	m.snapshots = counter("snapshots_installed_total", "Snapshots installed.")
	m.failures = counter("failures_total", "Replicas marked failed.")
	m.transactionMetrics.init(&collectors)
	locking, more := concurrency.NewMetrics()
	m.locking, collectors = locking, append(collectors, more...)
	m.gc, more = gc.NewMetrics()
	collectors = append(collectors, more...)
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
	refusedStarts prometheus.Counter
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
	m.refusedStarts = counter("requests_too_old_total",
		"Requests refused because their transaction, or its attempt, began longer ago than its "+
			"keyspace allows.")
	m.conflicts = counter("conflicts_total",
		"Transactions that have to run again because what they read has changed.")
	resolved := vector("locks_resolved_total", "outcome",
		"Locks ended, by what became of them; late ones were acquired after their "+
			"transaction was over.")
	m.locksCommitted = resolved.WithLabelValues("committed")
	m.locksAborted = resolved.WithLabelValues("aborted")
	m.locksLate = resolved.WithLabelValues("late")
	m.readsHeld = counter("commit_wait_reads_total",
		"Reads that saw a commit with commit wait before every clock had passed it, and waited.")
	m.commitWaits = histogram("commit_wait_seconds",
		"For how long commits, and reads that saw them, waited for every clock to pass their "+
			"timestamps.")
}
