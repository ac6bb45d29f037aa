package slowlog

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/timing"
)

// Metrics are the metrics of a slow log.
type Metrics struct {
	slow  prometheus.Counter
	parts [timing.Parts]prometheus.Observer
}

// NewMetrics makes the metrics and registers them, if registerer is not nil.
func NewMetrics(registerer prometheus.Registerer) *Metrics {
	m := &Metrics{slow: prometheus.NewCounter(prometheus.CounterOpts{
		Name: "tidemark_node_slow_requests_total",
		Help: "Requests that took longer than the threshold of slow requests."})}
	parts := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_node_request_stage_seconds",
		Help: "How long the parts of requests took, such as the wait for a lock; of one request in 64, " +
			"without parts that took no time.",
		Buckets: prometheus.ExponentialBuckets(20e-6, 4, 10)}, []string{"stage"})
	for p := range timing.Parts {
		m.parts[p] = parts.WithLabelValues(p.String())
	}
	if registerer != nil {
		registerer.MustRegister(m.slow, parts)
	}
	return m
}

// observe counts the parts of a request.
func (m *Metrics) observe(t *timing.Request) {
	for p := range timing.Parts {
		if spent := t.Spent(p); spent > 0 {
			m.parts[p].Observe(spent.Seconds())
		}
	}
}
