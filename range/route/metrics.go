package route

import (
	"errors"

	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// metrics of one Sender. Only what is off the straight path is counted: a request that goes well
// costs no metric.
type metrics struct {
	retries   map[string]*metric.Counter // by Backoff.Name
	suspected *metric.Gauge
	tables    *metric.Counter
	waits     *metric.Counter
	near      *nearMetrics

	registry   metric.Registry
	collectors []metric.Collector
}

func newMetrics(r metric.Registry) (*metrics, error) {
	retries := metric.NewVec("tidemark_client_retries_total",
		"Attempts of requests that were followed by another one, by class of failure.", "class")
	m := &metrics{
		retries: make(map[string]*metric.Counter),
		suspected: metric.NewGauge("tidemark_client_suspected_nodes",
			"Nodes that get pings instead of requests, because their connection broke or they "+
				"are silent.", nil),
		tables: metric.NewCounter("tidemark_client_table_streams_total",
			"Streams of the partition table that were opened.", nil),
		waits: metric.NewCounter("tidemark_client_clock_waits_total",
			"Reads that waited until the clocks had passed their moment: scans and counts over "+
				"partitions without a leader or over very many, and Views whose "+
				"first attempts were in vain.", nil),
	}
	m.near = newNearMetrics()
	for _, b := range []Backoff{routingBackoff, leaderlessBackoff, connectionBackoff,
		overloadedBackoff, waitedBackoff, quorumBackoff, unhealthyBackoff,
		unknownBackoff, identityBackoff} {
		m.retries[b.Name] = retries.With(b.Name)
	}
	if r == nil {
		return m, nil
	}
	m.registry = r
	for _, c := range []metric.Collector{retries, m.suspected, m.tables, m.waits, m.near.reads,
		m.near.outcomes, m.near.redirects} {
		if err := r.Register(c); err != nil {
			m.unregister()
			var twice *metric.RegisteredError
			if errors.As(err, &twice) {
				return nil, errors.New(
					"another client already uses this metrics registry: give each its own, " +
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
		m.registry.Unregister(c)
	}
	m.collectors = nil
}
