package embedded

import (
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
	"github.com/tidemarkdb/tidemark/placement/etcdapi"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/gateway"
	"github.com/tidemarkdb/tidemark/rpc/authn"
	"github.com/tidemarkdb/tidemark/rpc/limit"
	"github.com/tidemarkdb/tidemark/rpc/quota"
)

// Clients of etcd expect its JSON gateway, its health and its version where they expect gRPC. A
// connection on the servers' port that begins as one of HTTP/1 does is handed to an HTTP server,
// with its place among those of its host and its pace; with TLS it is one that has agreed on
// http/1.1, after the same handshake, with the same certificates, as all others. Etcd's metrics are
// there too; the server's own, and debug pages, are on the HTTP address only.

const (
	// gatewayGranted is how many bytes of requests of the gateway each host may have a server hold.
	gatewayGranted = 8 << 20
	// httpIdleTimeout is how long a connection of HTTP is kept on which nothing is asked.
	httpIdleTimeout = 3 * time.Minute
)

// newGateway makes the etcd API as JSON.
func (a *etcdAPI) newGateway() (*web.Counted, error) {
	bytes := a.config.MaxRequestBytes
	if bytes <= 0 {
		bytes = etcdapi.DefaultMaxRequestBytes
	}
	handler, err := gateway.New(gateway.Config{
		Find:    a.Find,
		Healthy: (&etcdChecks{a}).healthy,
		Versions: func() (server, cluster, storage string) {
			if services := a.member.etcdServices(); services != nil {
				return services.Versions()
			}
			return etcdapi.Version, "not_decided", "unknown"
		},
		// Bytes are a third larger in base64.
		MaxRequestBytes: (bytes+etcdapi.RequestOverheadBytes)/3*4 + 4<<10,
		Outgoing:        limit.Leaves,
		Room:            quota.NewBytes(a.memory.Gateway, gatewayGranted),
		Party: func(r *http.Request, from net.Addr) string {
			return authn.Principal(r.TLS, from)
		},
	})
	return &web.Counted{Handler: handler}, err
}

// servePaths has the gateway serve its paths.
func servePaths(mux *http.ServeMux, etcd http.Handler) {
	for _, path := range []string{"/health", "/version", "/v3/"} {
		mux.Handle(path, etcd)
	}
}

// clientPages are what is served of HTTP on the port of everything else.
func clientPages(etcd http.Handler, ready func() (bool, string), checks *etcdChecks,
	metrics http.Handler, logger *slog.Logger) *http.Server {
	mux := http.NewServeMux()
	servePaths(mux, etcd)
	mux.Handle("/metrics", metrics)
	serveProbes(mux, ready, checks)
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout: httpIdleTimeout, MaxHeaderBytes: maxHTTPHeader,
		ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelDebug)}
}
