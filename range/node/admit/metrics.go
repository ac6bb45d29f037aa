package admit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/range/admission/workqueue"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
)

// Metrics are the metrics of a Gate.
type Metrics struct {
	all              *hosted.Metrics
	refused, expired prometheus.Counter
	waits            [workqueue.Priorities]prometheus.Observer
}

// NewMetrics makes metrics, among those of a node.
func NewMetrics(m *hosted.Metrics) *Metrics {
	waits := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "tidemark_node_admission_wait_seconds", Help: "Waits of requests in the queue in which " +
			"they are while the node is asked for more than it can do, by priority.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12)}, []string{"priority"})
	m.Add(waits)
	out := &Metrics{all: m,
		refused: m.Counter("admission_refused_total", "Requests that were refused because "+
			"requests of the same user and keyspace had filled the queue or waited for too long."),
		expired: m.Counter("admission_expired_total", "Requests whose caller had stopped waiting when "+
			"they left the queue."),
	}
	for p := range workqueue.Priorities {
		out.waits[p] = waits.WithLabelValues(p.String())
	}
	return out
}

// of adds the figures of a queue.
func (m *Metrics) of(q *workqueue.Queue[waiting]) {
	m.all.GaugeOf("admission_waiting_requests", "Requests in the queue in which they are while the "+
		"node is asked for more than it can do.", func() float64 {
		return float64(q.Figures().Total())
	})
	m.all.GaugeOf("admission_limit_requests", "Requests that may be at work at the same time. It "+
		"falls while goroutines wait for processors.", func() float64 {
		return float64(q.Figures().Limit)
	})
	m.all.GaugeOf("admission_working_requests", "Requests that have begun and are not answered.",
		func() float64 { return float64(q.Figures().Working) })
}

// waited notes how long a request was in the queue.
func (m *Metrics) waited(p workqueue.Priority, d time.Duration) { m.waits[p].Observe(d.Seconds()) }
