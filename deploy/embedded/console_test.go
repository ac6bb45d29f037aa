package embedded

import (
	"bufio"
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"strings"
	"testing"
	"time"
)

// browser is what opens a console.
type browser struct {
	*testing.T
	client *http.Client
	url    string
}

func openConsole(t *testing.T, config *tls.Config, url string) *browser {
	jar, _ := cookiejar.New(nil)
	b := &browser{t, &http.Client{Jar: jar, Transport: &http.Transport{TLSClientConfig: config}}, url}
	t.Cleanup(b.client.CloseIdleConnections)
	return b
}

func (b *browser) call(method, path, body string) (int, string) {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("X-Tidemark-Console", "1")
	response, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

func (b *browser) wants(status int, text, method, path, body string) {
	b.Helper()
	if got, answer := b.call(method, path, body); got != status || !strings.Contains(answer, text) {
		b.Errorf("%s %s: %d %s, want %d with %q", method, path, got, answer, status, text)
	}
}

// feed returns the first answer of a feed.
func (b *browser) feed(name string) string {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
	defer cancel()
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/console/api/live?feed="+name, nil)
	response, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			return data
		}
	}
	b.Fatalf("the feed %s ended: %v", name, lines.Err())
	return ""
}

// With TLS the console is for certificates of administrators, and while authentication is enabled
// for users who log in: the cluster judges what they may, although the console's connections show
// the server's certificate.
func TestConsoleWithTLSAndUsers(t *testing.T) {
	config, configure := etcdCertificates(t)
	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: t.TempDir(), Nodes: 1, Cores: 1,
		Listen: "127.0.0.1:0", Configure: func(server int, c *ServerConfig) {
			configure(server, c)
			c.HTTP, c.TLSAdmins, c.ConsoleAdmin = "127.0.0.1:0", []string{"user"}, true
		}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := cluster.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	server := cluster.Server(0)
	url := "https://" + server.http.Address
	stranger := openConsole(t, &tls.Config{RootCAs: config.RootCAs}, url)
	administrator := openConsole(t, config, url)
	stranger.wants(http.StatusForbidden, "certificate", http.MethodGet, "/console/api/live?feed=cluster", "")
	stranger.wants(http.StatusOK, `<div id="app">`, http.MethodGet, "/", "")
	for _, feed := range []string{"cluster", "coord", "history", "heat", "txns", "slow", "backups"} {
		if got := administrator.feed(feed); strings.Contains(got, `"error"`) {
			t.Errorf("an administrator gets %s: %s", feed, got)
		}
	}
	etcd := etcdClient(t, config, cluster.Endpoints()...)
	enableUsers(t, etcd)
	for deadline := time.Now().Add(time.Minute); !server.auth.Enabled(); {
		if time.Now().After(deadline) {
			t.Fatal("the server does not follow users")
		}
		time.Sleep(10 * time.Millisecond)
	}
	administrator.wants(http.StatusUnauthorized, "log in", http.MethodGet,
		"/console/api/live?feed=cluster", "")
	stranger.wants(http.StatusUnauthorized, "", http.MethodPost, "/console/api/login",
		`{"User": "u", "Password": "wrong"}`)
	const pause = "/console/api/do/pause"
	stranger.wants(http.StatusUnauthorized, "log in", http.MethodPost, pause, "{}")
	stranger.wants(http.StatusOK, "", http.MethodPost, "/console/api/login",
		`{"User": "u", "Password": "pw"}`)
	if got := stranger.feed("cluster"); !strings.Contains(got, `"alive":true`) {
		t.Errorf("a user gets the cluster: %s", got)
	}
	if got := stranger.feed("backups"); !strings.Contains(got, `"denied":true`) {
		t.Errorf("a user gets backups: %s", got)
	}
	stranger.wants(http.StatusUnprocessableEntity, "permission denied", http.MethodPost, pause, "{}")
	administrator.wants(http.StatusOK, "", http.MethodPost, "/console/api/login",
		`{"User": "root", "Password": "secret"}`)
	administrator.wants(http.StatusOK, "", http.MethodPost, pause, "{}")
	if got := administrator.feed("placement"); !strings.Contains(got, `"paused":true`) {
		t.Errorf("after root has paused placement: %s", got)
	}
	if got := administrator.feed("backups"); strings.Contains(got, `"error"`) {
		t.Errorf("root gets backups: %s", got)
	}
	administrator.wants(http.StatusOK, "", http.MethodPost, "/console/api/logout", "{}")
	administrator.wants(http.StatusUnauthorized, "", http.MethodPost, pause, "{}")
}

// While the core does not answer nobody can check a password, and nobody logs in.
func TestConsoleLoginWithoutCore(t *testing.T) {
	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: t.TempDir(), Nodes: 2, Cores: 1,
		Listen: "127.0.0.1:0", Configure: func(_ int, c *ServerConfig) { c.HTTP = "127.0.0.1:0" }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := cluster.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	enableUsers(t, etcdClient(t, nil, cluster.Endpoints()[0]))
	heard(t, cluster.running()...)
	b := openConsole(t, nil, "http://"+cluster.Server(1).http.Address)
	if err := cluster.Kill(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"wrong", "secret"} {
		b.wants(http.StatusServiceUnavailable, "", http.MethodPost, "/console/api/login",
			`{"User": "root", "Password": "`+password+`"}`)
	}
	at, err := url.Parse(b.url + "/console/")
	if err != nil {
		t.Fatal(err)
	}
	if cookies := b.client.Jar.Cookies(at); len(cookies) != 0 {
		t.Errorf("the cookies are %v", cookies)
	}
}
