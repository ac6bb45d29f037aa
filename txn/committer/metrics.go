package committer

import (
	"errors"
	"strings"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// metrics are the metrics of one Committer.
type metrics struct {
	commits   *metric.Vec
	failures  *metric.Vec
	restarts  *metric.Vec
	pushed    *metric.Counter
	refreshes *metric.Vec
	holds     *metric.Vec
	rested    *metric.Counter
	left      *metric.Counter

	registry   metric.Registry
	collectors []metric.Collector
}

func newMetrics(r metric.Registry) (*metrics, error) {
	m := &metrics{
		commits: metric.NewVec("tidemark_client_txn_commits_total",
			"Transactions that were committed, by the way they took.", "phases"),
		failures: metric.NewVec("tidemark_client_txn_failures_total",
			"Attempts of transactions that were not committed, by reason. Most are run again.", "reason"),
		restarts: metric.NewVec("tidemark_client_txn_restarts_total",
			"Times that a transaction, or a snapshot of the present, was run again from its beginning, "+
				"by what was in the way.", "reason"),
		pushed: metric.NewCounter("tidemark_client_txn_pushed_total",
			"Times that a transaction was pushed by a reader while it was about to be committed.", nil),
		refreshes: metric.NewVec("tidemark_client_txn_refreshes_total",
			"Times that the reads of a transaction were moved to a later timestamp, by outcome.",
			"outcome"),
		holds: metric.NewVec("tidemark_client_txn_span_lock_attempts_total",
			"Attempts that asked to lock the spans over which earlier attempts had failed, by outcome; "+
				"refused attempts went on without locks.", "outcome"),
		rested: metric.NewCounter("tidemark_client_txn_backoff_seconds_total",
			"For how long large transactions have waited between their requests, to let others proceed.",
			nil),
		left: metric.NewCounter("tidemark_client_txn_cleanup_pending_total",
			"Transactions whose locks this client left for others to remove, because it was removing "+
				"the locks of too many.", nil),
	}
	if r == nil {
		return m, nil
	}
	m.registry = r
	for _, c := range []metric.Collector{m.commits, m.failures, m.restarts, m.pushed, m.refreshes,
		m.holds, m.rested, m.left} {
		if err := r.Register(c); err != nil {
			m.unregister()
			return nil, err
		}
		m.collectors = append(m.collectors, c)
	}
	return m, nil
}

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		m.registry.Unregister(c)
	}
	m.collectors = nil
}

// Restarted counts a restart after the error err.
func (c *Committer) Restarted(err error) {
	c.metrics.restarts.With(restartReason(err)).Inc()
}

func restartReason(err error) string {
	var e *Error
	if !errors.As(err, &e) && !errors.As(classify(0, err), &e) {
		return "other"
	}
	switch {
	case e.Kind == ErrConflict:
		return "conflict"
	case e.Kind != ErrAborted:
		return "other"
	case e.Reason == kvpb.AbortReason_NO_REASON:
		return "aborted"
	}
	return strings.ToLower(e.Reason.String())
}

// failed counts a failed attempt by its reason.
func (m *metrics) failed(err error) {
	reason := "other"
	var e *Error
	switch {
	case !errors.As(err, &e):
	case e.Kind == ErrConflict:
		reason = "conflict"
	case e.Kind == ErrAborted:
		reason = "aborted"
	case e.Kind == ErrTooOld:
		reason = "too-old"
	case e.Kind == ErrOutcomeUnknown:
		reason = "unknown"
	}
	m.failures.With(reason).Inc()
}
