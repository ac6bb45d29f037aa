package kvprom

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// Metrics registers the client's metrics. Clients that share a registry need different label sets
// (prometheus.WrapRegistererWith). Renamed metrics are registered under their old names as well.
func Metrics(r prometheus.Registerer) kv.Option {
	return kv.Metrics(prom.RegistryWithOldNames(r))
}
