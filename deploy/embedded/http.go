package embedded

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
)

// serveHTTP serves metrics, health and profiles until the server is closed.
//
//	/metrics      Prometheus
//	/livez        200 as long as the process answers
//	/readyz       200 when it serves, 503 with the reason otherwise
//	/debug/pprof  profiles
//
// more adds what belongs to one server only; nil for nothing.
func serveHTTP(metrics prometheus.Gatherer, ready func() (bool, string), more func(*http.ServeMux)) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		if ok, reason := ready(); !ok {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, reason)
			return
		}
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if more != nil {
		more(mux)
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
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

func startHTTP(addr string, handler *http.Server, listen func(string) (net.Listener, error)) (*httpServer, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("the HTTP address: %w", err)
	}
	h := &httpServer{server: handler, address: l.Addr().String(), done: make(chan error, 1)}
	go func() { h.done <- h.server.Serve(l) }()
	return h, nil
}

func (h *httpServer) close() error {
	err := ignoreClosed(h.server.Close())
	return errors.Join(err, ignoreClosed(<-h.done))
}

// labelledGatherer adds labels to all that a registry has, so that the servers of a process can be told apart.
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
			slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		}
	}
	return families, err
}
