package kvprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/metric/prom"
)

// Metrics registers the client's metrics. Clients that share a registry need different label sets
// (prometheus.WrapRegistererWith).
func Metrics(r prometheus.Registerer) kv.Option { return kv.Metrics(prom.Registry(r)) }
