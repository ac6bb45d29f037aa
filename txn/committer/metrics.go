package committer

import (
	"errors"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// metrics of one Committer.
type metrics struct {
	commits   *prometheus.CounterVec
	failures  *prometheus.CounterVec
	restarts  *prometheus.CounterVec
	pushed    prometheus.Counter
	refreshes *prometheus.CounterVec
	holds     *prometheus.CounterVec
	rested    prometheus.Counter
	left      prometheus.Counter

	registerer prometheus.Registerer
	collectors []prometheus.Collector
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_commits_total",
			Help: "Transactions that were committed, by the way they took.",
		}, []string{"phases"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_failures_total",
			Help: "Attempts of transactions that were not committed, by reason. Most are run again.",
		}, []string{"reason"}),
		restarts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_restarts_total",
			Help: "Times that a transaction, or a snapshot of the present, was run again from its beginning, by what was in the way.",
		}, []string{"reason"}),
		pushed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_pushed_total",
			Help: "Times that a transaction was pushed by a reader while it was about to be committed.",
		}),
		refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_refreshes_total",
			Help: "Times that the reads of a transaction were moved to a later timestamp, by outcome.",
		}, []string{"outcome"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_holds_total",
			Help: "Attempts that asked to hold the spans that attempts before had failed over, by outcome; refused ones went on without.",
		}, []string{"outcome"}),
		rested: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_rest_seconds_total",
			Help: "How long large transactions have rested between their requests, to make way for others.",
		}),
		left: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_client_transaction_ends_left_total",
			Help: "Transactions whose locks were left for others to remove, because too many were being removed.",
		}),
	}
	if r == nil {
		return m, nil
	}
	m.registerer = r
	for _, c := range []prometheus.Collector{m.commits, m.failures, m.restarts, m.pushed, m.refreshes, m.holds, m.rested, m.left} {
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
		m.registerer.Unregister(c)
	}
	m.collectors = nil
}

// Restarted counts that what failed with err is run again.
func (c *Committer) Restarted(err error) {
	c.metrics.restarts.WithLabelValues(restartReason(err)).Inc()
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

// failed counts why an attempt ended.
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
	m.failures.WithLabelValues(reason).Inc()
}
