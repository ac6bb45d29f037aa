package forward

import "github.com/tidemarkdb/tidemark/rpc/metric"

// metrics are those of a Forwarder.
type metrics struct {
	passed, unsent, refused *metric.Counter
	open                    *metric.Gauge
}

func newMetrics(r metric.Registry) *metrics {
	counter := func(outcome string) *metric.Counter {
		c := metric.NewCounter("tidemark_forward_calls_total", "Calls and streams of the etcd API that "+
			"this server, which does not answer them, has passed on to a member of the core "+
			"(outcome passed), could pass on to none (unsent), or has refused because their client has "+
			"too many open (refused).", map[string]string{"outcome": outcome})
		if r != nil {
			_ = r.Register(c)
		}
		return c
	}
	m := &metrics{passed: counter("passed"), unsent: counter("unsent"), refused: counter("refused"),
		open: metric.NewGauge("tidemark_forward_open_calls",
			"Calls and streams of the etcd API that are passed on to a member of the core.", nil)}
	if r != nil {
		_ = r.Register(m.open)
	}
	return m
}
