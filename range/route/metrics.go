package route

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics of one Sender. Only what is off the straight path is counted: a request that goes well costs no metric.
type metrics struct {
	retries   map[string]prometheus.Counter // by Backoff.Name
	suspected prometheus.Gauge
	tables    prometheus.Counter
	waits     prometheus.Counter

	registerer prometheus.Registerer
	collectors []prometheus.Collector
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	retries := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "tidemark_client_retries_total",
		Help: "Attempts of requests that were followed by another one, by class of failure.",
	}, []string{"class"})
	m := &metrics{
		retries: make(map[string]prometheus.Counter),
		suspected: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "tidemark_client_suspected_nodes",
			Help: "Nodes that get pings instead of requests, because their connection broke or they are silent.",
		}),
		tables: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_client_table_streams_total",
			Help: "Streams of the partition table that were opened.",
		}),
		waits: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "tidemark_client_clock_waits_total",
			Help: "Reads that waited until the clocks had passed their moment: scans and counts over partitions without a leader or over very many, and Views whose first attempts were in vain.",
		}),
	}
	for _, b := range []Backoff{routingBackoff, leaderlessBackoff, connectionBackoff, overloadedBackoff, waitedBackoff, quorumBackoff,
		unhealthyBackoff, unknownBackoff} {
		m.retries[b.Name] = retries.WithLabelValues(b.Name)
	}
	if r == nil {
		return m, nil
	}
	m.registerer = r
	for _, c := range []prometheus.Collector{retries, m.suspected, m.tables, m.waits} {
		if err := r.Register(c); err != nil {
			m.unregister()
			var twice prometheus.AlreadyRegisteredError
			if errors.As(err, &twice) {
				return nil, errors.New("another client already uses this metrics registry: give each its own, " +
					"such as one from prometheus.WrapRegistererWith")
			}
			return nil, err
		}
		m.collectors = append(m.collectors, c)
	}
	return m, nil
}

// Waited counts a read that waits until all clocks have passed its moment.
func (s *Sender) Waited() { s.metrics.waits.Inc() }

func (m *metrics) unregister() {
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
	m.collectors = nil
}
