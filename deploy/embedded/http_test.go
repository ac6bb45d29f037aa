package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics and health are for every client that reaches the address; debug pages for this machine
// and for known certificates.
func TestDebugPagesAreForOperators(t *testing.T) {
	server := serveHTTP(prometheus.NewRegistry(), func() (bool, string) { return true, "" },
		func(mux *http.ServeMux) {
			mux.HandleFunc("/debug/replicas", func(http.ResponseWriter, *http.Request) {})
		}, false)
	open := serveHTTP(prometheus.NewRegistry(), func() (bool, string) { return true, "" }, nil,
		true)
	r := httptest.NewRequest(http.MethodGet, "/debug/pprof/cmdline", nil)
	r.RemoteAddr = "10.0.0.9:1234"
	w := httptest.NewRecorder()
	if open.Handler.ServeHTTP(w, r); w.Code != http.StatusOK {
		t.Errorf("open to all: %d", w.Code)
	}
	known := &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{}}}
	for _, c := range []struct {
		path, from string
		tls        *tls.ConnectionState
		want       int
	}{
		{"/metrics", "10.0.0.9:1234", nil, http.StatusOK},
		{"/livez", "10.0.0.9:1234", nil, http.StatusOK},
		{"/readyz", "10.0.0.9:1234", nil, http.StatusOK},
		{"/debug/pprof/", "10.0.0.9:1234", nil, http.StatusForbidden},
		{"/debug/pprof/cmdline", "10.0.0.9:1234", new(tls.ConnectionState), http.StatusForbidden},
		{"/debug/replicas", "somewhere:1234", nil, http.StatusForbidden},
		{"/debug/pprof/cmdline", "10.0.0.9:1234", known, http.StatusOK},
		{"/debug/pprof/cmdline", "127.0.0.1:1234", nil, http.StatusOK},
		{"/debug/replicas", "[::1]:1234", nil, http.StatusOK},
		{"/debug/replicas", "[::ffff:127.0.0.1]:1234", nil, http.StatusOK},
	} {
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.RemoteAddr, r.TLS = c.from, c.tls
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%s from %s (%v): %d, want %d", c.path, c.from, c.tls != nil, w.Code, c.want)
		}
	}
}
