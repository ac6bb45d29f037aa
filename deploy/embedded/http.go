package embedded

import (
	"net/http"
	"net/http/pprof"
	"runtime"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/tidemarkdb/tidemark/deploy/embedded/console"
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
//	/console/     the web console (package console); / leads there
//	/health, /version, /v3/...  the etcd API as JSON
//
// cpu, if not nil, limits the processor time of metrics. more adds debug pages that belong to one
// server; it may be nil. They are for administrators, too. etcd and checks, if not nil, serve the
// etcd API and etcd's checks. console is the web console, or nil.
func serveHTTP(metrics prometheus.Gatherer, ready func() (bool, string), more func(*http.ServeMux),
	who web.Administrators, cpu *quota.CPULimiter, etcd http.Handler, checks *etcdChecks,
	console http.Handler) *http.Server {
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
	if console != nil {
		mux.Handle("/console/", console)
		mux.Handle("GET /{$}", http.RedirectHandler("/console/", http.StatusFound))
		mux.Handle("GET /console", http.RedirectHandler("/console/", http.StatusFound))
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes: maxHTTPHeader}
}

const (
	// maxHTTPConnections limits the connections to the HTTP port. Hosts share them as they share the
	// connections to the main port. maxHTTPHeader limits the bytes of a request's header.
	maxHTTPConnections = 256
	maxHTTPHeader      = 16 << 10
	// maxHTTPRequests is the number of requests for metrics that are answered at a time. Other
	// requests get status 503.
	maxHTTPRequests = 4
)

// withProcess adds to the metrics of servers the old names of renamed metrics, and the metrics of
// the process: go_..., process_... and the build. The metrics of the process are in a separate
// registry for each HTTP address, because a process may run many servers.
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

// newConsole makes the web console of a server's HTTP address. It asks the server's own cluster as
// a client does, this server first. With TLS, its connections use the server's certificate. That
// gives the users of the console no rights: while authentication is enabled, each call has the
// token of the user who has logged in, and the token takes precedence over the certificate.
func (s *Server) newConsole(who web.Administrators) (*console.Console, error) {
	return console.New(console.Config{
		Open:    s.consoleDialing().Open,
		Guarded: s.auth.Enabled,
		Refuse: func(r *http.Request) string {
			return who.Refuse(r, "the pages of the console")
		},
		Admin: s.config.ConsoleAdmin, Metrics: s.config.Registry, Version: s.config.Version,
		Logger: s.config.Logger,
	})
}

func (s *Server) consoleDialing() console.Dialing {
	dialing := console.Dialing{Dial: s.config.Dial, Endpoints: s.ownEndpoints}
	if s.tls != nil {
		dialing.TLS = s.tls.Client
	}
	return dialing
}

// newConsole makes the console of a cluster in this process. It asks the servers of the cluster.
func (c *Cluster) newConsole(config ClusterConfig) (*console.Console, error) {
	settings := console.Config{
		Open:    console.Dialing{Dial: c.network.Dialer(""), Endpoints: c.Endpoints}.Open,
		Guarded: c.guarded,
		Refuse: func(r *http.Request) string {
			return web.Administrators{}.Refuse(r, "the pages of the console")
		},
		Admin: config.ConsoleAdmin, Version: config.Version, Logger: config.Logger,
		Metrics: prometheus.GathererFunc(c.gather),
	}
	if config.Demo != nil {
		settings.Demo = config.Demo(c)
	}
	return console.New(settings)
}
