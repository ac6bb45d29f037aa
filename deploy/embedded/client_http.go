package embedded

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

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
func (s *Server) newGateway() (*counted, error) {
	bytes := s.config.MaxRequestBytes
	if bytes <= 0 {
		bytes = etcdapi.DefaultMaxRequestBytes
	}
	handler, err := gateway.New(gateway.Config{
		Find:    s.services.etcd.describe,
		Healthy: (&etcdChecks{s}).healthy,
		Versions: func() (server, cluster, storage string) {
			if services := s.etcdServices(); services != nil {
				return services.Versions()
			}
			return etcdapi.DefaultVersion, "not_decided", "unknown"
		},
		// Bytes are a third larger in base64.
		MaxRequestBytes: (bytes+etcdapi.RequestOverheadBytes)/3*4 + 4<<10,
		Outgoing:        limit.Leaves,
		Room:            quota.NewBytes(s.memory.Gateway, gatewayGranted),
		Party: func(r *http.Request, from net.Addr) string {
			return authn.Principal(r.TLS, from)
		},
	})
	return &counted{Handler: handler}, err
}

// counted is a handler whose calls can be waited for: what they use is closed after them.
type counted struct {
	http.Handler
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// ServeHTTP implements http.Handler.
func (c *counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		http.Error(w, "this server is closing", http.StatusServiceUnavailable)
		return
	}
	c.running.Add(1)
	c.mu.Unlock()
	defer c.running.Done()
	c.Handler.ServeHTTP(w, r)
}

// close has calls refused, and waits for those that are under way, whose connections are closed.
func (c *counted) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// etcdServices are those of this server's part of the coordination store; nil while there is none.
func (s *Server) etcdServices() *etcdapi.Services {
	s.parts.Lock()
	defer s.parts.Unlock()
	if s.parts.core == nil {
		return nil
	}
	return s.parts.core.coordination.services.Load()
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

// clientHTTP is an HTTP server whose connections another listener has accepted. It is their
// net.Listener.
type clientHTTP struct {
	server *http.Server
	at     net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	// done is closed when Serve has returned, with err.
	done chan struct{}
	err  error
}

var _ net.Listener = (*clientHTTP)(nil)

// serveClientHTTP serves connections that are handed to take, until close.
func serveClientHTTP(at net.Addr, server *http.Server) *clientHTTP {
	l := &clientHTTP{server: server, at: at, conns: make(chan net.Conn),
		closed: make(chan struct{}), done: make(chan struct{})}
	go func() {
		l.err = ignoreClosed(server.Serve(l))
		close(l.done)
	}()
	return l
}

// take serves a connection. It waits for nothing but the HTTP server's next Accept.
func (l *clientHTTP) take(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (l *clientHTTP) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *clientHTTP) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *clientHTTP) Addr() net.Addr { return l.at }

// close ends all connections. It may be called again.
func (l *clientHTTP) close() error {
	err := ignoreClosed(l.server.Close())
	<-l.done
	return errors.Join(err, l.err)
}
