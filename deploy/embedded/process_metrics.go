package embedded

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
)

// withProcess adds to the metrics of servers the old names of renamed ones, and the metrics of the
// process that they run in: go_..., process_... and what was built. They are in a registry of their
// own, one for each HTTP address: a process may run many servers, and there is one process.
func withProcess(servers prometheus.Gatherer, version string) prometheus.Gatherer {
	process := prometheus.NewRegistry()
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "tidemark_build_info", Help: "Always 1; its labels say which version runs, and " +
			"what it was built with.",
		ConstLabels: prometheus.Labels{"version": version, "goversion": runtime.Version()},
	})
	build.Set(1)
	process.MustRegister(build, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return prometheus.Gatherers{process, prom.WithOldNames(servers)}
}
