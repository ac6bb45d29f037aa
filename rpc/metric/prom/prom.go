package prom

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/metric"
)

// Registry returns a metric.Registry that registers collectors with r; nil if r is nil.
func Registry(r prometheus.Registerer) metric.Registry {
	if r == nil {
		return nil
	}
	return registry{r}
}

type registry struct{ registerer prometheus.Registerer }

// Register implements metric.Registry.
func (r registry) Register(c metric.Collector) error {
	err := r.registerer.Register(newCollector(c))
	var already prometheus.AlreadyRegisteredError
	if !errors.As(err, &already) {
		return err
	}
	there := &metric.RegisteredError{}
	if existing, ok := already.ExistingCollector.(*collector); ok {
		there.Existing = existing.of
	}
	return there
}

// Unregister implements metric.Registry.
func (r registry) Unregister(c metric.Collector) { r.registerer.Unregister(newCollector(c)) }

// collector adapts a metric.Collector to Prometheus.
type collector struct {
	of   metric.Collector
	desc *prometheus.Desc
	kind prometheus.ValueType
	by   bool
}

func newCollector(of metric.Collector) *collector {
	d := of.Describe()
	var labels []string
	if d.By != "" {
		labels = []string{d.By}
	}
	c := &collector{
		of: of, by: d.By != "", kind: prometheus.CounterValue,
		desc: prometheus.NewDesc(d.Name, d.Help, labels, d.Labels),
	}
	if d.Gauge {
		c.kind = prometheus.GaugeValue
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(into chan<- *prometheus.Desc) { into <- c.desc }

// Collect implements prometheus.Collector.
func (c *collector) Collect(into chan<- prometheus.Metric) {
	c.of.Collect(func(label string, value float64) {
		var labels []string
		if c.by {
			labels = []string{label}
		}
		into <- prometheus.MustNewConstMetric(c.desc, c.kind, value, labels...)
	})
}
