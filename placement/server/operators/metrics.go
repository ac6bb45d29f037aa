package operators

import (
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
)

// metrics count operators.
type metrics struct {
	operators, resizes *prometheus.CounterVec
	operatorTime       *prometheus.HistogramVec
}

func newMetrics() (m metrics) {
	m.operators = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_placement_operators_ended_total",
		Help: "Changes of partitions' replicas and leaders, splits and merges that have ended, by " +
			"what they did and whether they were done or cancelled.",
	}, []string{"kind", "outcome"})
	m.operatorTime = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_placement_operator_duration_seconds",
		Help: "How long changes of partitions' replicas and leaders, splits and merges took, from " +
			"record to end.",
		Buckets: prometheus.ExponentialBuckets(0.25, 2, 14),
	}, []string{"kind"})
	kinds := []string{steps.SplitKind}
	for _, kind := range planner.Kinds() {
		if l := label(kind.String()); l != steps.SplitKind {
			kinds = append(kinds, l)
		}
	}
	for _, kind := range kinds {
		for _, outcome := range []string{steps.DoneText, "cancelled", "other"} {
			m.operators.WithLabelValues(kind, outcome)
		}
		m.operatorTime.WithLabelValues(kind)
	}
	m.resizes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_placement_resizes_begun_total",
		Help: "Splits and merges of partitions that placement has begun by itself, and moves for " +
			"them, by why.",
	}, []string{"reason"})
	for _, cause := range resizeCauses {
		m.resizes.WithLabelValues(label(cause.String()))
	}
	return m
}

// Collectors returns the metrics of operators.
func (s *Operators) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.metrics.operators, s.metrics.operatorTime, s.metrics.resizes}
}

// resizeCauses are the causes of splits and merges, and of the operators that prepare them.
var resizeCauses = []planner.Cause{planner.TooLarge, planner.TooBusy, planner.NewTail,
	planner.Misaligned, planner.TooSmall}

// begun counts an operator that placement has begun automatically.
func (m *metrics) begun(cause planner.Cause) {
	if slices.Contains(resizeCauses, cause) {
		m.resizes.WithLabelValues(label(cause.String())).Inc()
	}
}

// label returns the kind of an operator in the form of a label.
func label(kind string) string { return strings.ReplaceAll(kind, " ", "_") }

// ended counts an operator that has ended.
func (m *metrics) ended(o *serverpb.Operator, outcome string, took time.Duration) {
	switch {
	case outcome == steps.DoneText:
	case o.Cancelled:
		outcome = "cancelled"
	default:
		outcome = "other"
	}
	kind := label(o.Kind)
	m.operators.WithLabelValues(kind, outcome).Inc()
	m.operatorTime.WithLabelValues(kind).Observe(took.Seconds())
}
