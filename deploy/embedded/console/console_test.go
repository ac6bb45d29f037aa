package console

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a cluster with one node. Methods that it does not have panic.
type fake struct {
	Cluster
	user   string
	asked  atomic.Int64 // questions for partitions
	closed atomic.Bool
	paused atomic.Bool
	// partitions are the answer; down makes the core not answer.
	partitions []admin.PartitionInfo
	down       atomic.Bool
	points     []admin.LoadPoint
	// unchecked: the core does not answer, so that no password can be checked.
	unchecked atomic.Bool
}

func (f *fake) Status(context.Context) (admin.Status, error) {
	if f.unchecked.Load() {
		return admin.Status{}, errors.New("the core has no quorum")
	}
	return admin.Status{Cluster: 7, Node: 1, Ready: true}, nil
}

func (f *fake) Nodes(context.Context) ([]admin.NodeInfo, error) {
	if f.down.Load() {
		return nil, errors.New("the core has no quorum")
	}
	return []admin.NodeInfo{{ID: 1, Address: "a:1", Alive: true, Status: admin.NodeActive}}, nil
}

func (f *fake) Partitions(context.Context, string) ([]admin.PartitionInfo, error) {
	f.asked.Add(1)
	return f.partitions, nil
}

func (f *fake) Keyspaces(context.Context) ([]admin.KeyspaceInfo, error) {
	return []admin.KeyspaceInfo{{Name: "fruit", Partitions: len(f.partitions)}}, nil
}

func (f *fake) Operators(context.Context) ([]admin.OperatorInfo, error) { return nil, nil }
func (f *fake) CoreHealth(context.Context) (admin.Core, error)          { return admin.Core{}, nil }
func (f *fake) Upgrade(context.Context) (admin.Upgrade, error)          { return admin.Upgrade{}, nil }
func (f *fake) Etcd(context.Context) (*clientv3.Client, error)          { return nil, errors.New("none") }
func (f *fake) Backups(context.Context) ([]admin.BackupInfo, error) {
	return nil, kv.ErrPermissionDenied
}
func (f *fake) WhyNode(context.Context, uint64) (admin.Explanation, error) {
	return admin.Explanation{Text: "because"}, nil
}

func (f *fake) Placement(context.Context) (admin.PlacementSettings, error) {
	return admin.PlacementSettings{Paused: f.paused.Load()}, nil
}

func (f *fake) PausePlacement(_ context.Context, paused bool) (admin.PlacementSettings, error) {
	f.paused.Store(paused)
	return admin.PlacementSettings{Paused: paused}, nil
}

func (f *fake) SlowRequests(context.Context, admin.SlowQuery) (admin.SlowRequests, error) {
	return admin.SlowRequests{Nodes: []admin.SlowNode{{Node: 1, Threshold: time.Second, Count: 3}},
		Requests: []admin.SlowRequest{{Node: 1, Kind: "get", Key: []byte("a\x00"), Keys: 3,
			Took: 2 * time.Second, Parts: []admin.RequestPart{{Name: "lock", Took: time.Second}}}}}, nil
}

func (f *fake) Close() error {
	f.closed.Store(true)
	return nil
}

// site is a console with an HTTP server.
type site struct {
	*testing.T
	console *Console
	cluster *fake
	guarded atomic.Bool
	url     string
	client  *http.Client
}

func open(t *testing.T, change func(*Config)) *site {
	s := &site{T: t, cluster: &fake{}}
	for id := range uint64(3) {
		s.cluster.partitions = append(s.cluster.partitions, admin.PartitionInfo{ID: id + 1,
			Keyspace: "fruit", Hash: -1, Start: []byte{'a' + byte(id)}, Leader: 1,
			Replicas: []admin.ReplicaInfo{{Node: 1}}, Minute: admin.PartitionActivity{Writes: id}})
	}
	config := Config{
		Open: func(_ context.Context, user, password string) (Cluster, error) {
			if user != "" && password != "secret of "+user {
				return nil, fmt.Errorf("the password is wrong: %w", kv.ErrUnauthenticated)
			}
			s.cluster.user = user
			return s.cluster, nil
		},
		Guarded: s.guarded.Load, Refuse: func(*http.Request) string { return "" }, Version: "v1",
	}
	if change != nil {
		change(&config)
	}
	var err error
	if s.console, err = New(config); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.console)
	jar, _ := cookiejar.New(nil)
	s.url, s.client = server.URL, &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(func() {
		server.CloseClientConnections()
		s.console.Close()
		server.Close()
		s.client.CloseIdleConnections()
	})
	return s
}

// call makes a request, and returns the status and the body.
func (s *site) call(method, path, body string, headers ...string) (int, string) {
	s.Helper()
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	if method == http.MethodPost {
		r.Header.Set(header, "1")
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	response, err := s.client.Do(r)
	if err != nil {
		s.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.Fatal(err)
	}
	return response.StatusCode, string(text)
}

func (s *site) wants(status int, text, method, path, body string, headers ...string) {
	s.Helper()
	got, answer := s.call(method, path, body, headers...)
	if got != status || !strings.Contains(answer, text) {
		s.Errorf("%s %s %s: %d %s, want %d with %q", method, path, headers, got, answer, status, text)
	}
}

// page follows feeds until it is closed.
type page struct {
	body  io.ReadCloser
	lines *bufio.Scanner
}

func (s *site) follow(feeds ...string) *page {
	s.Helper()
	response, err := s.client.Get(s.url + "/console/api/live?feed=" + strings.Join(feeds, "&feed="))
	if err != nil {
		s.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(response.Body)
		response.Body.Close()
		s.Fatalf("following %s: %d %s", feeds, response.StatusCode, text)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	return &page{response.Body, lines}
}

// next returns the data of the next event.
func (p *page) next() string {
	for p.lines.Scan() {
		if data, ok := strings.CutPrefix(p.lines.Text(), "data: "); ok {
			return data
		}
	}
	return ""
}

func (p *page) close() { _ = p.body.Close() }

// until waits for a condition.
func (s *site) until(what string, ok func() bool) {
	s.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.Fatalf("not within 20 s: %s", what)
		}
	}
}

func (s *site) feeds() int {
	s.console.hub.mu.Lock()
	defer s.console.hub.mu.Unlock()
	return len(s.console.hub.feeds)
}

// All pages together ask what one asks, and nothing is asked when no page is open.
func TestPagesShareFeeds(t *testing.T) {
	s := open(t, nil)
	if s.cluster.asked.Load() != 0 {
		t.Error("the cluster is asked although no page is open")
	}
	var pages []*page
	for range 10 {
		p := s.follow("cluster", "partitions")
		pages = append(pages, p)
		if got := p.next() + p.next(); !strings.Contains(got, `"partitions":3`) ||
			!strings.Contains(got, `"total":3`) {
			t.Fatalf("a page gets %s", got)
		}
	}
	if n := s.feeds(); n != 2 {
		t.Errorf("ten pages have %d feeds, want 2", n)
	}
	if asked := s.cluster.asked.Load(); asked > 4 {
		t.Errorf("ten pages asked %d times for partitions", asked)
	}
	for _, p := range pages {
		p.close()
	}
	s.until("the feeds end with the pages", func() bool { return s.feeds() == 0 })
	asked := s.cluster.asked.Load()
	p := s.follow("cluster")
	p.next()
	p.close()
	s.until("the feed ends", func() bool { return s.feeds() == 0 })
	if again := s.cluster.asked.Load(); again > asked+1 {
		t.Errorf("a page that was open for a moment asked %d times", again-asked)
	}
}

// The number of streams, and of feeds of a stream, is bounded, and names that are no feeds are
// refused.
func TestStreamsAreBounded(t *testing.T) {
	s := open(t, nil)
	for _, bad := range []string{"", "?feed=nothing", "?feed=cluster%0Adata:+x", "?feed=partitions%3F%25",
		"?feed=" + strings.Repeat("partitions", 60), "?feed=" +
			strings.Repeat("cluster&feed=", feedsOfStream) + "events"} {
		if status, text := s.call(http.MethodGet, "/console/api/live"+bad, ""); status < 400 {
			t.Errorf("%s: %d %s", bad, status, text)
		}
	}
	var pages []*page
	for range maxStreams {
		pages = append(pages, s.follow("keyspaces"))
	}
	s.wants(http.StatusServiceUnavailable, "close some pages", http.MethodGet,
		"/console/api/live?feed=keyspaces", "")
	for _, p := range pages {
		p.close()
	}
	s.until("the feed ends", func() bool { return s.feeds() == 0 })
	s.until("there is room for a stream", func() bool { return len(s.console.streams) == 0 })
	for i := range maxFeeds {
		if _, err := s.console.hub.follow(s.console.nobody, fmt.Sprintf("partitions?from=%d", i),
			nil); err != nil {
			t.Fatal(err)
		}
	}
	s.wants(http.StatusServiceUnavailable, "close some pages", http.MethodGet,
		"/console/api/live?feed=keyspaces", "")
}

// What the core does not say is said not to be known, and the rest is shown.
func TestCoreDoesNotAnswer(t *testing.T) {
	s := open(t, nil)
	s.cluster.down.Store(true)
	p := s.follow("cluster")
	defer p.close()
	if got := p.next(); !strings.Contains(got, `"unknown":"the core has no quorum"`) {
		t.Errorf("without the core a page gets %s", got)
	}
	s.cluster.down.Store(false)
	if got := p.next(); strings.Contains(got, "unknown") || !strings.Contains(got, `"id":1`) {
		t.Errorf("after that a page gets %s", got)
	}
}

// A change needs the setting, the header of the console's pages, and their origin.
func TestChanges(t *testing.T) {
	s := open(t, nil)
	const pause = "/console/api/do/pause"
	s.wants(http.StatusForbidden, "--console-admin", http.MethodPost, pause, "{}")
	s.wants(http.StatusNotFound, "no demo", http.MethodPost, "/console/api/demo/stop", "{}")
	s = open(t, func(c *Config) { c.Admin = true })
	for _, forged := range [][]string{{header, ""}, {"Origin", "http://evil.example"},
		{"Sec-Fetch-Site", "cross-site"}, {"Sec-Fetch-Site", "same-site"}, {"Origin", "null"}} {
		s.wants(http.StatusForbidden, "own pages", http.MethodPost, pause, "{}", forged...)
	}
	s.wants(http.StatusForbidden, "own pages", http.MethodDelete, pause, "")
	s.wants(http.StatusNotFound, "", http.MethodGet, pause, "")
	s.wants(http.StatusBadRequest, "not understood", http.MethodPost, pause, "{")
	s.wants(http.StatusBadRequest, "not understood", http.MethodPost, pause, `{"Other": 1}`)
	s.wants(http.StatusBadRequest, "too large", http.MethodPost, pause,
		`{"Transaction": "`+strings.Repeat("x", maxBody)+`"}`)
	s.wants(http.StatusNotFound, "no such change", http.MethodPost, "/console/api/do/format", "{}")
	if s.cluster.paused.Load() {
		t.Fatal("a request that was refused has paused placement")
	}
	s.wants(http.StatusOK, "", http.MethodPost, pause, "{}", "Origin", s.url)
	if !s.cluster.paused.Load() {
		t.Error("placement is not paused")
	}
	s.wants(http.StatusOK, "because", http.MethodGet, "/console/api/why?of=n1", "")
}

// A page of another site whose name leads to this machine gets nothing.
func TestNamesOfOtherSites(t *testing.T) {
	s := open(t, nil)
	for host, status := range map[string]int{"evil.example:7480": http.StatusForbidden,
		"localhost:7480": http.StatusOK, "127.0.0.1": http.StatusOK, "[::1]:7480": http.StatusOK,
		"localhost.evil.example": http.StatusForbidden, "10.0.0.7:80": http.StatusOK} {
		s.wants(status, "", http.MethodGet, "/console/api/why?of=n1", "", "Host", host)
	}
}

// Callers who may not see debug pages see nothing, and are told why.
func TestStrangersAreRefused(t *testing.T) {
	s := open(t, func(c *Config) {
		c.Refuse = func(*http.Request) string { return "this is not for you" }
	})
	s.wants(http.StatusForbidden, "not for you", http.MethodGet, "/console/api/live?feed=cluster", "")
	s.wants(http.StatusOK, `"refused":"this is not for you"`, http.MethodGet, "/console/api/session",
		"")
	s.wants(http.StatusOK, "<!doctype html>", http.MethodGet, "/console/", "")
}

// While authentication is enabled a caller has to log in; the session ends with the logout.
func TestSessions(t *testing.T) {
	s := open(t, nil)
	anonymous := s.follow("keyspaces")
	defer anonymous.close()
	anonymous.next()
	s.guarded.Store(true)
	if got := anonymous.next(); !strings.Contains(got, "log in") ||
		!strings.Contains(got, `"denied":true`) {
		t.Errorf("a page from before authentication was enabled gets %s", got)
	}
	if got := anonymous.next(); got != "" {
		t.Errorf("then the page goes on, and gets %s", got)
	}
	const live, login = "/console/api/live?feed=keyspaces", "/console/api/login"
	s.wants(http.StatusUnauthorized, "log in", http.MethodGet, live, "")
	s.wants(http.StatusUnauthorized, "wrong", http.MethodPost, login,
		`{"User": "ann", "Password": "x"}`)
	s.wants(http.StatusBadRequest, "", http.MethodPost, login, `{"Password": "x"}`)
	s.wants(http.StatusUnauthorized, "log in", http.MethodGet, live, "")
	s.wants(http.StatusOK, "", http.MethodPost, login,
		`{"User": "ann", "Password": "secret of ann"}`)
	s.wants(http.StatusOK, `"user":"ann"`, http.MethodGet, "/console/api/session", "")
	p := s.follow("keyspaces", "backups")
	defer p.close()
	got := p.next() + p.next()
	if !strings.Contains(got, "fruit") || !strings.Contains(got, `"denied":true`) {
		t.Errorf("a user gets %s", got)
	}
	if s.cluster.user != "ann" {
		t.Errorf("the cluster was asked as %q", s.cluster.user)
	}
	s.wants(http.StatusOK, "", http.MethodPost, "/console/api/logout", "{}")
	s.wants(http.StatusUnauthorized, "log in", http.MethodGet, live, "")
	if !s.cluster.closed.Load() {
		t.Error("the connections of the user are still open after the logout")
	}
}

// A login fails if nobody has checked the password.
func TestLoginWithoutCore(t *testing.T) {
	s := open(t, nil)
	s.guarded.Store(true)
	s.cluster.unchecked.Store(true)
	s.wants(http.StatusServiceUnavailable, "no quorum", http.MethodPost, "/console/api/login",
		`{"User": "ann", "Password": "secret of ann"}`)
	if n := len(s.console.sessions.all); n != 0 {
		t.Errorf("there are %d sessions", n)
	}
}

// Logins from one host leave room for those from others, and those that find no room wait.
func TestLoginsFromOneHost(t *testing.T) {
	going, let := make(chan struct{}, 100), make(chan struct{})
	var log strings.Builder
	s := open(t, func(c *Config) {
		open := c.Open
		c.Open = func(ctx context.Context, user, password string) (Cluster, error) {
			if user == "slow" {
				going <- struct{}{}
				<-let
			}
			return open(ctx, user, password)
		}
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	s.guarded.Store(true)
	from := func(host, user string) int {
		r := httptest.NewRequest(http.MethodPost, "/console/api/login",
			strings.NewReader(fmt.Sprintf(`{"User": %q, "Password": "secret of %s"}`, user, user)))
		r.Header.Set(header, "1")
		r.RemoteAddr = host
		answer := httptest.NewRecorder()
		s.console.ServeHTTP(answer, r)
		return answer.Code
	}
	answers := make(chan int, 100)
	for range maxLogins {
		go func() { answers <- from("127.0.0.1:9", "slow") }()
	}
	for range maxLogins / 2 {
		<-going
	}
	if status := from("127.0.0.2:9", "ann"); status != http.StatusOK {
		t.Errorf("a login from another host is answered with %d", status)
	}
	close(let)
	for range maxLogins {
		if status := <-answers; status != http.StatusOK {
			t.Errorf("a login that has waited is answered with %d", status)
		}
	}
	if s.console.logins.running != 0 || len(s.console.logins.of) != 0 {
		t.Errorf("after all logins: %+v", s.console.logins)
	}
	log.Reset()
	for range 50 {
		r := httptest.NewRequest(http.MethodPost, "/console/api/login",
			strings.NewReader(`{"User": "eve", "Password": "x"}`))
		r.Header.Set(header, "1")
		s.console.ServeHTTP(httptest.NewRecorder(), r)
	}
	if n := strings.Count(log.String(), "\n"); n < 1 || n > 20 {
		t.Errorf("50 failed logins have %d lines", n)
	}
}

// A login that finds no room is refused after a while, or at once if many wait.
func TestLoginsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLogins()
		var ends []func()
		for _, host := range []string{"a", "a", "b", "b"} {
			ends = append(ends, l.begin(t.Context(), host))
		}
		began := time.Now()
		if l.begin(t.Context(), "c") != nil || time.Since(began) != loginPatience {
			t.Errorf("it is refused after %v", time.Since(began))
		}
		for range maxWaitingLogins {
			go l.begin(t.Context(), "a")
		}
		synctest.Wait()
		began = time.Now()
		if l.begin(t.Context(), "a") != nil || time.Since(began) != 0 {
			t.Errorf("after %v it is refused although many wait", time.Since(began))
		}
		time.Sleep(2 * loginPatience)
		for _, end := range ends {
			end()
		}
		if len(l.of) != 0 || l.running != 0 {
			t.Errorf("after all logins: %+v", l)
		}
	})
}

// Failed logins have a line from time to time, with the number of those without one.
func TestFailuresAreLogged(t *testing.T) {
	f, now, lines, all := &failures{}, time.Unix(1000, 0), 0, 0
	for range 1000 {
		now = now.Add(time.Millisecond)
		if omitted, ok := f.take(now); ok {
			lines, all = lines+1, all+1+omitted
		}
	}
	if lines != 10 || all < 900 {
		t.Errorf("%d lines about %d of 1000 failures", lines, all)
	}
}

// Sessions are bounded in number and in time, and their cookies are for the console only.
func TestSessionsAreBounded(t *testing.T) {
	now := time.Unix(1000, 0)
	s := &sessions{now: func() time.Time { return now }, all: map[string]*session{}}
	request := func(secret string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/console/", nil)
		r.AddCookie(cookie(r, secret))
		return r
	}
	first := newViewer("ann", nil)
	secret := s.begin(first)
	bobs := newViewer("bob", nil)
	s.begin(bobs)
	for range maxSessions {
		now = now.Add(time.Second)
		s.begin(newViewer("bob", nil))
	}
	if len(s.all) != 1+sessionsOfUser || s.of(request(secret)) != first || !s.over(bobs) {
		t.Errorf("after many logins of a user there are %d sessions, want %d with that of another",
			len(s.all), 1+sessionsOfUser)
	}
	for i := range maxSessions {
		now = now.Add(time.Second)
		s.begin(newViewer(fmt.Sprint(i), nil))
	}
	if len(s.all) != maxSessions || s.of(request(secret)) != nil || !s.over(first) {
		t.Errorf("%d sessions, want %d, without the oldest", len(s.all), maxSessions)
	}
	eve := newViewer("eve", nil)
	secret = s.begin(eve)
	for _, step := range []struct {
		wait time.Duration
		want *viewer
	}{{sessionIdle, eve}, {sessionIdle, eve}, {sessionIdle + time.Second, nil}} {
		now = now.Add(step.wait)
		if got := s.of(request(secret)); got != step.want {
			t.Errorf("after %s the session is of %v", step.wait, got)
		}
	}
	if c := cookie(request(""), "x"); !c.HttpOnly || c.SameSite != http.SameSiteStrictMode ||
		c.Path != "/console/" || c.Secure {
		t.Errorf("the cookie over plain HTTP is %+v", c)
	}
	// Browsers send cookies to all ports of a host.
	other := request("")
	other.Host = "example.com:7481"
	if a, b := cookie(request(""), "x"), cookie(other, "x"); a.Name == b.Name {
		t.Errorf("the cookies of two ports are both named %s", a.Name)
	}
}

// Pages come packed and with an ETag; assets for ever; and nothing from elsewhere is loaded.
func TestFiles(t *testing.T) {
	s := open(t, nil)
	_, index := s.call(http.MethodGet, "/console/", "")
	for _, name := range []string{"main-", "style-"} {
		at := strings.Index(index, "/console/assets/"+name)
		if at < 0 {
			t.Fatalf("the page does not name the asset %s: %s", name, index)
		}
		asset := index[at : at+strings.IndexByte(index[at:], '"')]
		response, err := s.client.Get(s.url + asset)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if !response.Uncompressed || !strings.Contains(response.Header.Get("Cache-Control"),
			"immutable") {
			t.Errorf("%s: packed %v, %v", asset, response.Uncompressed, response.Header)
		}
		s.wants(http.StatusNotModified, "", http.MethodGet, asset, "", "If-None-Match",
			response.Header.Get("ETag"))
		if policy := response.Header.Get("Content-Security-Policy"); !strings.Contains(policy,
			"default-src 'self'") || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %q", policy)
		}
	}
	s.wants(http.StatusOK, "<!doctype html>", http.MethodGet, "/console/nodes", "")
	s.wants(http.StatusNotFound, "", http.MethodGet, "/console/assets/other.js", "")
	s.wants(http.StatusNotFound, "", http.MethodGet, "/console/../../etc/passwd.txt", "")
	s.wants(http.StatusMethodNotAllowed, "", http.MethodPost, "/console/", "")
	s.wants(http.StatusNotFound, "nothing at this address", http.MethodGet, "/console/api/x", "")
}

// Slow requests come with their parts.
func TestSlowRequests(t *testing.T) {
	s := open(t, nil)
	p := s.follow("slow")
	defer p.close()
	if got := p.next(); !strings.Contains(got, `"micros":2000000,"parts":[{"name":"lock","micros":1000000}]`) ||
		!strings.Contains(got, `"key":"a\\x00 and 2 more"`) ||
		!strings.Contains(got, `"nodes":[{"node":1,"thresholdMicros":1000000,"count":3}]`) {
		t.Errorf("a page gets %s", got)
	}
}

// Keys come as text that a page can show, whatever bytes they have.
func TestKeysAsText(t *testing.T) {
	for key, want := range map[string]string{"apple": "apple", "a\x00b": `a\x00b`, "é": "é",
		"\xff\xfe": `\xff\xfe`, strings.Repeat("x", 200): strings.Repeat("x", 120) + "…"} {
		if got := keyText([]byte(key)); got != want {
			t.Errorf("%q is shown as %s, want %s", key, got, want)
		}
	}
}
