package embedded

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// httpGet gets a page, or posts to it if there is a body.
func httpGet(t *testing.T, client *http.Client, url, body string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if body != "" {
		r, err = http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	}
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, text)
}

// TestHTTPOnTheServersPort: clients that speak HTTP/1 get etcd's gateway, health and version where
// others get gRPC, and nothing else.
func TestHTTPOnTheServersPort(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	useHTTP(t, client, "http", at)
	for path, want := range map[string]string{"/metrics": "200 ", "/debug/pprof/": "404 ",
		"/readyz": "200 ok", "/livez": "200 ok"} {
		if got := httpGet(t, client, "http://"+at[0]+path, ""); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
	// A server that is no member of the core passes the question on.
	if got := httpGet(t, client, "http://"+at[3]+"/health", ""); !strings.HasPrefix(got,
		`200 {"health":"true"`) {
		t.Error(got)
	}
	// One that says nothing sensible is let go, and others are served meanwhile.
	raw, err := net.Dial("tcp", at[0])
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := io.WriteString(raw, "PO"); err != nil {
		t.Fatal(err)
	}
	useEtcd(t, etcdClient(t, nil, at[0]), 0)
	rest := "ST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
	if _, err := io.WriteString(raw, rest); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(raw).ReadString('\n'); err != nil ||
		!strings.HasPrefix(line, "HTTP/1.1 400") {
		t.Error(line, err)
	}
	// A watch does not keep a server from closing.
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+at[1]+"/v3/watch",
		strings.NewReader(`{"create_request":{"key":"YQ=="}}`))
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewReader(response.Body)
	if line, err := lines.ReadString('\n'); err != nil || !strings.Contains(line, `"created":true`) {
		t.Fatal(line, err)
	}
	if err := cluster.Server(1).Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := lines.ReadString('\n'); err == nil {
		t.Error("the watch goes on")
	}
}

// useHTTP asks each member of the core.
func useHTTP(t *testing.T, client *http.Client, scheme string, at []string) {
	t.Helper()
	for i := range 3 {
		url := scheme + "://" + at[i]
		if got := httpGet(t, client, url+"/health", ""); got != `200 {"health":"true","reason":""}` {
			t.Error(got)
		}
		if got := httpGet(t, client, url+"/version", ""); !strings.Contains(got, `"etcdserver":"3.`) {
			t.Error(got)
		}
		if got := httpGet(t, client, url+"/v3/kv/put",
			`{"key":"YQ==","value":"MQ=="}`); !strings.HasPrefix(got, `200 {"header":{"cluster_id":"`) {
			t.Error(got)
		}
		if got := httpGet(t, client, url+"/v3/kv/range", `{"key":"YQ=="}`); !strings.Contains(got,
			fmt.Sprintf(`"version":"%d","value":"MQ=="`, i+1)) {
			t.Error(got)
		}
	}
}

// TestHTTPWithTLS: a client that agrees on http/1.1 shows the same certificate as others.
func TestHTTPWithTLS(t *testing.T) {
	config, configure := etcdCertificates(t)
	cluster := startEtcd(t, configure)
	at := cluster.Endpoints()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: config}}
	defer client.CloseIdleConnections()
	useHTTP(t, client, "https", at)
	useEtcd(t, etcdClient(t, config, at[:3]...), 0)
	without := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: config.RootCAs}}}
	defer without.CloseIdleConnections()
	if _, err := without.Get("https://" + at[0] + "/health"); err == nil {
		t.Error("it was answered without a certificate")
	}
}

// TestGatewayAnswersCount: what the gateway answers counts among what is on its way to clients, as
// the text that it is, until it is written or its client has gone.
func TestGatewayAnswersCount(t *testing.T) {
	cluster := startEtcd(t, nil)
	at := cluster.Endpoints()[0]
	answers := cluster.Server(0).etcd.answers
	client := etcdClient(t, nil, at)
	const values, size = 24, 1 << 20
	for i := range values {
		if _, err := client.Put(t.Context(), fmt.Sprint("k", i),
			strings.Repeat("x", size)); err != nil {
			t.Fatal(err)
		}
	}
	awaitTrue(t, "nothing is on its way", func() bool { return answers.Held() == 0 })
	raw, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	body := `{"key":"aw==","range_end":"bA=="}`
	if _, err := fmt.Fprintf(raw, "POST /v3/kv/range HTTP/1.1\r\nHost: x\r\n"+
		"Content-Length: %d\r\n\r\n%s", len(body), body); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "the text counts", func() bool { return answers.Held() >= values*size/3*4 })
	if err := raw.Close(); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "it is dropped", func() bool { return answers.Held() == 0 })
	got := httpGet(t, http.DefaultClient, "http://"+at+"/v3/kv/range", body)
	if !strings.HasPrefix(got, "200 ") || len(got) < values*size/3*4 {
		t.Errorf("%d bytes: %.80s", len(got), got)
	}
	awaitTrue(t, "it is sent", func() bool { return answers.Held() == 0 })
	http.DefaultClient.CloseIdleConnections()
}
