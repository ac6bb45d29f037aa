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

// Clients of etcd expect its JSON gateway, its health page and its version page on the gRPC port. A
// connection on the servers' port that begins with HTTP/1 is handed to an HTTP server. It counts as
// a connection of its host, with the same limits. With TLS, such a connection has negotiated
// http/1.1, with the same handshake and certificates as all others. Etcd's metrics are served there
// too. The server's own metrics, and debug pages, are on the HTTP address only.

const (
	// gatewayGranted is the number of bytes of gateway requests that a server always grants to each
	// host.
	gatewayGranted = 8 << 20
	// httpIdleTimeout is the time for which an HTTP connection without a request stays open.
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
		// Bytes are a third longer in base64.
		MaxRequestBytes: (bytes+etcdapi.RequestOverheadBytes)/3*4 + 4<<10,
		Outgoing:        limit.Leaves,
		Spans:           a.Spans,
		Room:            quota.NewBytes(a.memory.Gateway, gatewayGranted),
		Party: func(r *http.Request, from net.Addr) string {
			return authn.Principal(r.TLS, from)
		},
	})
	return &web.Counted{Handler: handler}, err
}

// servePaths registers the paths of the gateway.
func servePaths(mux *http.ServeMux, etcd http.Handler) {
	for _, path := range []string{"/health", "/version", "/v3/"} {
		mux.Handle(path, etcd)
	}
}

// clientPages returns the handler of the HTTP pages on the server's main port.
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
