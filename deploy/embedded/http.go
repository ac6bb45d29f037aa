package embedded

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

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
// pace, if not nil, slows hosts down that ask too much. more adds debug pages that belong to one
// server only; nil for nothing. They are for administrators, too. etcd and checks, if not nil,
// serve the etcd API and etcd's checks.
func serveHTTP(metrics prometheus.Gatherer, ready func() (bool, string), more func(*http.ServeMux),
	who administrators, pace *quota.Pace, etcd http.Handler, checks *etcdChecks) *http.Server {
	mux := http.NewServeMux()
	if etcd != nil {
		servePaths(mux, etcd)
	}
	mux.Handle("/metrics", paced(pace, promhttp.HandlerFor(metrics, promhttp.HandlerOpts{
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
	mux.Handle("/debug/", who.only(debug))
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
	// costOfPage is about how much processor time it takes to answer with metrics.
	costOfPage = 5 * time.Millisecond
)

// paced is a page that costs something: a host that uses much of the processors while others wait
// for one has to wait for it.
func paced(pace *quota.Pace, page http.Handler) http.Handler {
	if pace == nil {
		return page
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := net.SplitHostPort(r.RemoteAddr)
		wait, _ := pace.Charge(host, costOfPage, time.Now())
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-r.Context().Done():
			return
		}
		page.ServeHTTP(w, r)
	})
}

// administrators are the clients that the debug pages are for: a profile costs the server work, and
// holds parts of what it works on. With TLS they are the clients whose certificates have one of the
// names, else those on this machine.
type administrators struct {
	all   bool
	tls   bool
	names []string
}

// only lets administrators through to pages.
func (a administrators) only(pages http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refusal := a.refuse(r); refusal != "" {
			http.Error(w, refusal, http.StatusForbidden)
			return
		}
		pages.ServeHTTP(w, r)
	})
}

// refuse says why a request is not an administrator's; "" if it is.
func (a administrators) refuse(r *http.Request) string {
	switch {
	case a.all:
		return ""
	case !a.tls:
		from, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !from.Addr().Unmap().IsLoopback() {
			return "debug pages are for clients on this machine (see --http-debug)"
		}
		return ""
	case len(a.names) == 0:
		return "debug pages are for administrators, and this server knows none: start it with " +
			"--tls-admin and the names of their certificates"
	case r.TLS == nil || len(r.TLS.VerifiedChains) == 0:
		return "debug pages are for administrators: show the certificate of one (--tls-admin)"
	}
	leaf := r.TLS.VerifiedChains[0][0]
	if !slices.ContainsFunc(a.names, func(name string) bool {
		return name == leaf.Subject.CommonName || slices.Contains(leaf.DNSNames, name)
	}) {
		return fmt.Sprintf("debug pages are for administrators, and the certificate of %q is none of "+
			"theirs (--tls-admin)", leaf.Subject.CommonName)
	}
	return ""
}

func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// httpServer is a running serveHTTP.
type httpServer struct {
	server *http.Server
	// address is where it listens.
	address string
	done    chan error
}

func startHTTP(addr string, handler *http.Server,
	listen func(string) (net.Listener, error)) (*httpServer, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("the HTTP address: %w", cannotListen(addr, err))
	}
	h := &httpServer{server: handler, address: l.Addr().String(), done: make(chan error, 1)}
	go func() { h.done <- h.server.Serve(l) }()
	return h, nil
}

func (h *httpServer) close() error {
	err := ignoreClosed(h.server.Close())
	return errors.Join(err, ignoreClosed(<-h.done))
}

// labelledGatherer adds labels to all that a registry has, so that the servers of a process can be
// told apart.
type labelledGatherer struct {
	prometheus.Gatherer
	labels prometheus.Labels
}

// Gather implements prometheus.Gatherer.
func (g labelledGatherer) Gather() ([]*dto.MetricFamily, error) {
	families, err := g.Gatherer.Gather()
	for _, f := range families {
		for _, m := range f.Metric {
			for name, value := range g.labels {
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
