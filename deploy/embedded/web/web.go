package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/quota"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// costOfPage is the approximate processor time of an answer with metrics.
const costOfPage = 5 * time.Millisecond

// Limited returns a page with a processor cost: a host that uses much processor time while others
// wait for a processor has to wait for the page.
func Limited(cpu *quota.CPULimiter, page http.Handler) http.Handler {
	if cpu == nil {
		return page
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		wait, _ := cpu.Charge(host, costOfPage, time.Now())
		if backoff.Sleep(r.Context(), wait) != nil {
			return
		}
		page.ServeHTTP(w, r)
	})
}

// Administrators are the clients that may see the debug pages: a profile costs processor time, and
// contains data of the server. With TLS, they are the clients whose certificates have one of the
// names. Without TLS, they are the clients on this machine.
type Administrators struct {
	All   bool
	TLS   bool
	Names []string
}

// Only passes requests of administrators on to pages, and refuses all others.
func (a Administrators) Only(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusal := a.Refuse(r, "debug pages"); refusal != "" {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// Refuse returns why a request for pages does not come from an administrator. It returns "" if it
// does. pages names the pages, in the plural.
func (a Administrators) Refuse(r *http.Request, pages string) string {
	switch {
	case a.All:
		return ""
	case !a.TLS:
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !from.Addr().Unmap().IsLoopback() {
			return pages + " are for clients on this machine (see --http-debug)"
		}
		return ""
	case len(a.Names) == 0:
		return pages + " are for administrators, and this server knows none: start it with " +
			"--tls-admin and the names of their certificates"
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
		return pages + " are for administrators: show the certificate of one (--tls-admin)"
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if !slices.ContainsFunc(a.Names, func(name string) bool {
		return name == leaf.Subject.CommonName || slices.Contains(leaf.DNSNames, name)
	}) {
		return fmt.Sprintf("%s are for administrators, and the certificate of %q is none of "+
			"theirs (--tls-admin)", pages, leaf.Subject.CommonName)
	}
	return ""
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Server is a running HTTP server.
type Server struct {
	server *http.Server
	// Address is the address on which the server listens.
	Address string
	done    chan error
}

func Start(addr string, handler *http.Server,
	listen func(string) (net.Listener, error)) (*Server, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("the HTTP address: %w", CannotListen(addr, err))
	}
	h := &Server{server: handler, Address: l.Addr().String(), done: make(chan error, 1)}
	go func() { h.done <- h.server.Serve(l) }()
	return h, nil
}

func (h *Server) Close() error {
	err := ignoreClosed(h.server.Close())
	return errors.Join(err, ignoreClosed(<-h.done))
}

// LabelledGatherer adds labels to all metrics of a registry, so that the servers of a process can
// be distinguished.
type LabelledGatherer struct {
	prometheus.Gatherer
	Labels prometheus.Labels
}

// Gather implements prometheus.Gatherer.
func (g LabelledGatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.Gatherer.Gather()
	for _, f := range families {
		for _, m := range f.Metric {
			for name, value := range g.Labels {
				m.Label = append(m.Label, &dto.LabelPair{Name: &name, Value: &value})
			}
			slices.SortFunc(m.Label, func(a,
				b *dto.LabelPair) int {
				return strings.Compare(a.GetName(), b.GetName())
			})
		}
	}
	return families, err
}

// Counted is a handler whose calls can be awaited: the objects that they use are closed after them.
type Counted struct {
	http.Handler
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup
}

// ServeHTTP implements http.Handler.
func (c *Counted) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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

// Close makes new calls fail, and waits for the calls under way. Their connections must have been
// closed.
func (c *Counted) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.running.Wait()
}

// Handed is an HTTP server for connections that another listener has accepted. It also implements
// the net.Listener of that server.
type Handed struct {
	server *http.Server
	at     net.Addr
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
	// done is closed when Serve has returned, with err.
	done chan struct{}
	err  error
}

var _ net.Listener = (*Handed)(nil)

// ServeHanded serves connections that are passed to Take, until End.
func ServeHanded(at net.Addr, server *http.Server) *Handed {
	l := &Handed{server: server, at: at, conns: make(chan net.Conn),
		closed: make(chan struct{}), done: make(chan struct{})}
	go func() {
		l.err = ignoreClosed(server.Serve(l))
		close(l.done)
	}()
	return l
}

// Take serves a connection. It waits only for the next Accept of the HTTP server.
func (l *Handed) Take(c net.Conn) {
	select {
	case l.conns <- c:
	case <-l.closed:
		_ = c.Close()
	}
}

// Accept implements net.Listener.
func (l *Handed) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (l *Handed) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr implements net.Listener.
func (l *Handed) Addr() net.Addr { return l.at }

// End ends all connections. It may be called again.
func (l *Handed) End() error {
	err := ignoreClosed(l.server.Close())
	<-l.done
	return errors.Join(err, l.err)
}

// DebugPage adds a page in JSON.
func DebugPage(mux *http.ServeMux, path string, page func(*http.Request) any) {
	mux.HandleFunc(path, func(w http.ResponseWriter, r *http.Request) {
		text, err := json.MarshalIndent(page(r), "", "  ")
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, "%s\n", text)
	})
}

// CannotListen adds the reason to the error of listening on an address.
func CannotListen(address string, err error) error {
	what := wire.Reason(err)
	if errors.Is(err, syscall.EADDRINUSE) {
		what = "another process listens there already"
	}
	return fmt.Errorf("cannot listen on %s: %s", address, what)
}
