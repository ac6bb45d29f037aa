// Package metrics has the counters that the replicas of a node share.
package metrics

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

// Index of an outcome: 0 is success, 1 + code is an error.
const outcomeCount = 2 + int(kvpb.ErrorCode_QUOTA_EXCEEDED)

// Metrics are the counters that the replicas of a node share. There are none for single partitions,
// since a node holds ten thousand.
type Metrics struct {
	commands     [][outcomeCount]prometheus.Counter
	Reads        Reads
	Writes       Writes
	Transactions Transactions
	Applied      Applied
	// CommitWait observes how long commits, and reads that saw them, waited for all clocks.
	CommitWait prometheus.Histogram
	// Vacant is the budget of all memories of spans without values; nil until the node is prepared.
	Vacant  atomic.Pointer[vacant.Budget]
	GC      *gc.Metrics
	Locking *concurrency.Metrics
}

// Reads counts reads.
type Reads struct {
	// Lease, ReadIndex, Closed and Admitted count the reads served, by their proof.
	Lease, ReadIndex, Closed, Admitted prometheus.Counter
	// Admissions counts the reads that leaders admitted for other replicas, NotClosed the reads
	// that were left to the leader.
	Admissions, NotClosed prometheus.Counter
	Changes               prometheus.Counter
	ChangesLag            prometheus.Histogram
	// Waited counts reads that waited for a write in flight, Held those that waited for all clocks.
	Waited, Held           prometheus.Counter
	Restarted, BeyondLease prometheus.Counter
	// Moved... count reads that were served at a later timestamp, by reason.
	MovedUncertain, MovedCommit, MovedCollected prometheus.Counter
}

// Writes counts writes from the queue to the log.
type Writes struct {
	EntryWrites, EntryBytes          prometheus.Histogram
	Proposals, Queued, PendingWrites prometheus.Gauge
	Duplicates, Reevaluated          prometheus.Counter
}

// Transactions counts events of transactions.
type Transactions struct {
	SpansRefused, Disconnected prometheus.Counter
	// Aborts counts by AbortReason, at the coordinator.
	Aborts                                  [7]prometheus.Counter
	OnePhase, TwoPhase, Conflicts           prometheus.Counter
	LocksCommitted, LocksAborted, LocksLate prometheus.Counter
	// RefusedStarts counts requests of transactions that began too long ago.
	RefusedStarts prometheus.Counter
}

// Applied measures the apply of the log.
type Applied struct {
	Seconds                                prometheus.Histogram
	Entries, Rejected, Snapshots, Failures prometheus.Counter
}

// New makes the metrics and registers them, if registerer is not nil. Registering them twice
// panics, as with prometheus.MustRegister.
func New(registerer prometheus.Registerer) *Metrics {
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
	m.Writes.EntryWrites = histogram("entry_writes", "Writes that share one Raft entry.",
		prometheus.ExponentialBuckets(1, 2, 12))
	m.Writes.EntryBytes = histogram("entry_bytes", "Bytes in one Raft entry.",
		prometheus.ExponentialBuckets(64, 4, 10))
	m.Applied.Seconds = histogram("apply_seconds",
		"Duration of one Apply call, on leaders and followers.",
		prometheus.ExponentialBuckets(1e-6, 4, 12))
	m.Applied.Entries = counter("applied_entries_total", "Raft entries applied.")
	reads := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_replica_reads_total", Help: "Reads served, by what proved that they are " +
			"right: a lease, a read index, that their timestamp is closed, so that any replica serves " +
			"them, or that a leader has admitted them.",
	}, []string{"path"})
	collectors = append(collectors, reads)
	m.Reads.Lease = reads.WithLabelValues("lease")
	m.Reads.Closed = reads.WithLabelValues("closed")
	m.Reads.Admitted = reads.WithLabelValues("admission")
	m.Reads.Admissions = counter("reads_admitted_total",
		"Reads that a leader admitted for another replica to read: it proved its leadership and chose "+
			"their timestamps, and read nothing.")
	m.Reads.NotClosed = counter("follower_reads_redirected_total",
		"Reads that a replica left to the leader: their timestamp was not closed, a lock was in the "+
			"way, or it had not applied what they were admitted at.")
	m.Reads.Changes = counter("feed_changes_total", "Versions that answers to change feeds brought.")
	m.Reads.ChangesLag = histogram("feed_lag_seconds",
		"How far behind the clock what was resolved for a change feed was, for each answer.",
		prometheus.ExponentialBuckets(0.01, 2, 14))
	m.Reads.ReadIndex = reads.WithLabelValues("read_index")
	m.Reads.Waited = counter("reads_waited_total", "Reads that waited for a write in flight.")
	m.Reads.BeyondLease = counter("reads_beyond_lease_total",
		"Reads refused because they were further ahead of the clock than the leader's lease lasted; "+
			"clients send them again.")
	m.Reads.Restarted = counter("uncertainty_restarts_total",
		"Reads moved up to the timestamp of a version from a faster clock.")
	m.Writes.Proposals = gauge("proposals_in_flight", "Entries proposed and not yet applied.")
	m.Writes.Queued = gauge("queued_writes", "Writes that wait for evaluation.")
	m.Writes.PendingWrites = gauge("pending_writes", "Writes that are evaluated and not yet applied.")
	m.Writes.Duplicates = counter("duplicates_total",
		"Retries that found their own request id and were not applied again.")
	m.Applied.Rejected = counter("rejected_entries_total",
		"Entries without effect, because one that they were evaluated on was lost.")
	vacantKeys := func(name, help string, of func(*vacant.Budget) uint64) {
		collectors = append(collectors, prometheus.NewCounterFunc(
			prometheus.CounterOpts{Name: "tidemark_replica_" + name, Help: help}, func() float64 {
				if b := m.Vacant.Load(); b != nil {
					return float64(of(b))
				}
				return 0
			}))
	}
	vacantKeys("tombstones_skipped_total", "Keys without a value that scans did not walk over, "+
		"because the replica knew that their span has none.", (*vacant.Budget).Passed)
	vacantKeys("tombstones_scanned_total", "Keys without a value that scans walked over, and whose "+
		"span the replica remembers since.", (*vacant.Budget).Walked)
	m.Writes.Reevaluated = counter("reevaluations_total",
		"Writes evaluated again because what they had found expired before they took effect.")
	m.Applied.Snapshots = counter("snapshots_installed_total", "Snapshots installed.")
	m.Applied.Failures = counter("failures_total", "Replicas marked failed.")
	m.transactions(&collectors)
	locking, more := concurrency.NewMetrics()
	m.Locking, collectors = locking, append(collectors, more...)
	m.GC, more = gc.NewMetrics()
	collectors = append(collectors, more...)
	if registerer != nil {
		registerer.MustRegister(collectors...)
	}
	return m
}

// Answered counts a response.
func (m *Metrics) Answered(c *command.Command, response *kvpb.Response) {
	outcome := 0
	if response.Error != nil {
		outcome = 1 + int(response.Error.Code)
		if outcome < 0 || outcome >= outcomeCount {
			outcome = 1
		}
	}
	m.commands[c.Index()][outcome].Inc()
}

func (m *Metrics) transactions(collectors *[]prometheus.Collector) {
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
	m.Transactions.SpansRefused = counter("span_locks_refused_total",
		"Requests to hold spans that were answered without, because too many were held.")
	m.Transactions.Disconnected = counter("lock_waits_disconnected_total",
		"Requests for locks that had waited for another one, and were given up because their client "+
			"was not connected any more.")
	moved := vector("read_restarts_total", "why",
		"Reads that the server itself moved to a later timestamp.")
	m.Reads.MovedUncertain = moved.WithLabelValues("uncertain")
	m.Reads.MovedCommit = moved.WithLabelValues("commit")
	m.Reads.MovedCollected = moved.WithLabelValues("collected")
	aborts := vector("aborts_total", "reason", "Transactions aborted here as their coordinator.")
	for r := range m.Transactions.Aborts {
		m.Transactions.Aborts[r] = aborts.WithLabelValues(strings.ToLower(kvpb.AbortReason(r).String()))
	}
	commits := vector("commits_total", "phases",
		"Transactions committed here, in one phase or as the coordinator of two.")
	m.Transactions.OnePhase = commits.WithLabelValues("one")
	m.Transactions.TwoPhase = commits.WithLabelValues("two")
	m.Transactions.RefusedStarts = counter("requests_too_old_total",
		"Requests refused because their transaction, or its attempt, began longer ago than its "+
			"keyspace allows.")
	m.Transactions.Conflicts = counter("conflicts_total",
		"Transactions that have to run again because what they read has changed.")
	resolved := vector("locks_resolved_total", "outcome",
		"Locks ended, by what became of them; late ones were acquired after their "+
			"transaction was over.")
	m.Transactions.LocksCommitted = resolved.WithLabelValues("committed")
	m.Transactions.LocksAborted = resolved.WithLabelValues("aborted")
	m.Transactions.LocksLate = resolved.WithLabelValues("late")
	m.Reads.Held = counter("commit_wait_reads_total",
		"Reads that saw a commit with commit wait before every clock had passed it, and waited.")
	m.CommitWait = histogram("commit_wait_seconds",
		"For how long commits, and reads that saw them, waited for every clock to pass their "+
			"timestamps.")
}
