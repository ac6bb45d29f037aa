package hosted

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of a node. Each room adds its own, before Register registers all of them.
type Metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector
}

// NewMetrics makes metrics for a registerer, which may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics { return &Metrics{registerer: r} }

// Counter makes the counter tidemark_node_NAME.
func (m *Metrics) Counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: "tidemark_node_" + name, Help: help})
	m.Add(c)
	return c
}

// Gauge makes the gauge tidemark_node_NAME.
func (m *Metrics) Gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tidemark_node_" + name, Help: help})
	m.Add(g)
	return g
}

// GaugeOf makes the gauge tidemark_node_NAME, which calls value.
func (m *Metrics) GaugeOf(name, help string, value func() float64) {
	m.Add(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "tidemark_node_" + name, Help: help},
		value))
}

// Add adds a collector.
func (m *Metrics) Add(c prometheus.Collector) { m.collectors = append(m.collectors, c) }

// Register registers the metrics. It is called when everything that they read exists: a registry
// may be read at any moment, even while the server starts.
func (m *Metrics) Register() {
	if m.registerer != nil {
		m.registerer.MustRegister(m.collectors...)
	}
}

// Close takes the metrics out of the registry.
func (m *Metrics) Close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}
