package embedded

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tidemarkdb/tidemark/deploy/embedded/web"
)

// Metrics and health are for every client that reaches the address; debug pages for administrators:
// clients on this machine, or with TLS those with certain certificates.
func TestDebugPagesAreForAdministrators(t *testing.T) {
	const far, near = "10.0.0.9:1234", "127.0.0.1:1234"
	shown := func(name string, dns ...string) *tls.ConnectionState {
		return &tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{{
			Subject: pkix.Name{CommonName: name}, DNSNames: dns}}}}
	}
	none := new(tls.ConnectionState)
	named := web.Administrators{TLS: true, Names: []string{"root", "ops.example"}}
	for _, c := range []struct {
		who        web.Administrators
		path, from string
		tls        *tls.ConnectionState
		want       int
	}{
		{web.Administrators{}, "/metrics", far, nil, http.StatusOK},
		{web.Administrators{}, "/livez", far, nil, http.StatusOK},
		{web.Administrators{}, "/readyz", far, nil, http.StatusOK},
		{named, "/metrics", far, none, http.StatusOK},
		{web.Administrators{}, "/debug/pprof/", far, nil, http.StatusForbidden},
		{web.Administrators{}, "/debug/replicas", "somewhere:1234", nil, http.StatusForbidden},
		{web.Administrators{}, "/debug/pprof/cmdline", near, nil, http.StatusOK},
		{web.Administrators{}, "/debug/replicas", "[::1]:1234", nil, http.StatusOK},
		{web.Administrators{}, "/debug/replicas", "[::ffff:127.0.0.1]:1234", nil, http.StatusOK},
		{web.Administrators{All: true}, "/debug/pprof/cmdline", far, nil, http.StatusOK},
		{web.Administrators{TLS: true}, "/debug/pprof/cmdline", near, shown("root"),
			http.StatusForbidden},
		{named, "/debug/pprof/cmdline", near, none, http.StatusForbidden},
		{named, "/debug/pprof/cmdline", near, shown("app"), http.StatusForbidden},
		{named, "/debug/pprof/cmdline", far, shown("root"), http.StatusOK},
		{named, "/debug/replicas", far, shown("x", "ops.example"), http.StatusOK},
	} {
		server := serveHTTP(prometheus.NewRegistry(), func() (bool, string) { return true, "" },
			func(mux *http.ServeMux) {
				mux.HandleFunc("/debug/replicas", func(http.ResponseWriter, *http.Request) {})
			}, c.who, nil, nil, nil, nil)
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.RemoteAddr, r.TLS = c.from, c.tls
		w := httptest.NewRecorder()
		server.Handler.ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: %s from %s: %d (%s), want %d", c.who, c.path, c.from, w.Code, w.Body, c.want)
		}
	}
}
