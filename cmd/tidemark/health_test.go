package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// pages answers as a server does that is alive, and ready or not.
func pages(status int, text string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		fmt.Fprint(w, text)
	})
	return mux
}

// listening is the address of a server of pages.
func listening(t *testing.T, handler http.Handler) string {
	t.Helper()
	s := httptest.NewServer(handler)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func TestHealth(t *testing.T) {
	ready := listening(t, pages(http.StatusOK, "ok\n"))
	starting := listening(t, pages(http.StatusServiceUnavailable,
		"the core is forming\nthe clock is not trusted\n"))
	mute := listening(t, pages(http.StatusServiceUnavailable, ""))
	other := listening(t, http.NotFoundHandler())
	moved := listening(t, http.RedirectHandler("http://"+ready+"/readyz", http.StatusFound))
	unused := porttest.Address(t)
	_, port, _ := strings.Cut(ready, ":")
	for _, c := range []struct {
		args string
		code int
		says string
	}{
		{"--http " + ready, exit.OK, ""},
		{"--http " + ready + " --live", exit.OK, ""},
		{"--http 0.0.0.0:" + port, exit.OK, ""},
		{"--http :" + port, exit.OK, ""},
		{"--http " + starting, exit.Failed,
			"the server at " + starting +
				" is not ready: the core is forming; the clock is not trusted\n"},
		{"--http " + starting + " --live", exit.OK, ""},
		{"--http " + mute, exit.Failed, "it gives no reason"},
		{"--http " + other, exit.Failed, "not a server of Tidemark: it answered with status 404"},
		{"--http " + moved, exit.Failed, "status 302"},
		{"--http " + unused + " --live", exit.Failed, "is not alive: connection refused\n"},
		{"--http " + ready + " --tls", exit.Failed, "the server speaks no TLS"},
		{"--http " + ready + " --tls-name db1", exit.Usage, "--tls-name"},
		{"--http nowhere", exit.Usage, "HOST:PORT"},
		{"--http " + ready + " more", exit.Usage, "no arguments"},
	} {
		got := command(t, "", nil, append([]string{"health"}, strings.Fields(c.args)...)...)
		if got.code != c.code || !strings.Contains(got.err, c.says) ||
			(c.says == "") != (got.err == "") {
			t.Errorf("health %s: %+v, want code %d and %q", c.args, got, c.code, c.says)
		}
	}
	got := command(t, "", map[string]string{httpEnv: starting}, "health", "-o", "json")
	var row struct {
		HTTP    string
		Ready   bool
		Reasons []string
	}
	if err := json.Unmarshal([]byte(got.out), &row); err != nil || row.Ready ||
		row.HTTP != starting ||
		len(row.Reasons) != 2 || row.Reasons[1] != "the clock is not trusted" {
		t.Errorf("from the environment: %+v, %v, %+v", got, err, row)
	}
	// A server that is well has an empty list, not none.
	got = command(t, "", nil, "health", "-o", "json", "--live", "--http", ready)
	if got.out != fmt.Sprintf("{\"http\":%q,\"alive\":true,\"reasons\":[]}\n", ready) {
		t.Errorf("%+v", got)
	}
}

// A server that does not answer is given up when --timeout is over.
func TestHealthTimesOut(t *testing.T) {
	silent := listening(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		<-r.Context().Done()
	}))
	got := command(t, "", nil, "health", "--http", silent, "--timeout", "50ms")
	if got.code != exit.Failed || !strings.Contains(got.err, "no answer in time") {
		t.Errorf("%+v", got)
	}
}

// A server is asked with TLS as other commands do it.
func TestHealthWithTLS(t *testing.T) {
	dir, address, http := t.TempDir(), porttest.Address(t), porttest.Address(t)
	cert, key := certificate(t, dir)
	s := serve(t, "start", "--dir", filepath.Join(dir, "data"), "--listen", address, "--core",
		address, "--http", http, "--tls-cert", cert, "--tls-key", key, "--tls-ca", cert)
	s.says(`tidemark: ready on`)
	environment := map[string]string{httpEnv: http, argument.TLSCAEnv: cert}
	for _, c := range []struct {
		args string
		env  map[string]string
		code int
		says string
	}{
		{"--http " + http + " --tls-ca " + cert, nil, exit.OK, ""},
		{"", environment, exit.OK, ""},
		{"--live", environment, exit.OK, ""},
		{"", map[string]string{httpEnv: http}, exit.Failed, "wants TLS, and was called without: give"},
		{"--tls --http " + http, nil, exit.Failed, "give its file with --tls-ca"},
		{"--tls-name db1", environment, exit.Failed, "for another name"},
		{"--tls-name 127.0.0.1", environment, exit.OK, ""},
		{"--tls-ca " + key + " --http " + http, nil, exit.Usage, "no PEM certificate"},
	} {
		got := command(t, "", c.env, append([]string{"health"}, strings.Fields(c.args)...)...)
		if got.code != c.code || !strings.Contains(got.err, c.says) {
			t.Errorf("health %s: %+v, want code %d and %q", c.args, got, c.code, c.says)
		}
	}
	s.end()
}
