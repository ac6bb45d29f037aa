package embedded

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
	"github.com/tidemarkdb/tidemark/rpc/metric/prom"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// serveHTTP serves metrics, health and profiles until the server is closed.
//
//	/metrics      Prometheus
//	/livez        200 as long as the process answers
//	/readyz       200 when it serves, 503 with the reason otherwise (package probe)
//	/debug/pprof  profiles, for administrators
//	/health, /version, /v3/...  the etcd API as JSON
//
// cpu, if not nil, limits what metrics cost. more adds debug pages that belong to one
// server only; nil for nothing. They are for administrators, too. etcd and checks, if not nil,
// serve the etcd API and etcd's checks.
func serveHTTP(metrics prometheus.Gatherer, ready func() (bool, string), more func(*http.ServeMux),
	who web.Administrators, cpu *quota.CPULimiter, etcd http.Handler, checks *etcdChecks) *http.Server {
	mux := http.NewServeMux()
	if etcd != nil {
		servePaths(mux, etcd)
	}
	mux.Handle("/metrics", web.Limited(cpu, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxHTTPRequests})))
	serveProbes(mux, ready, checks)
	debug := http.NewServeMux()
	debug.HandleFunc("/debug/pprof/", pprof.Index)
	debug.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	debug.HandleFunc("/debug/pprof/profile", pprof.Profile)
	debug.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	debug.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if more != nil {
		more(debug)
	}
	mux.Handle("/debug/", who.Only(debug))
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: maxHTTPHeader}
}

const (
	// maxHTTPConnections bounds the connections to the HTTP port, which hosts share as they do those
	// to the other; maxHTTPHeader the bytes of a request's header.
	maxHTTPConnections = 256
	maxHTTPHeader      = 16 << 10
	// maxHTTPRequests is how many requests for metrics are answered at a time; others get 503.
	maxHTTPRequests = 4
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
