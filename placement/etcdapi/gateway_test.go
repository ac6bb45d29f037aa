package etcdapi

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/gateway"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/watches"
)

// found are services by their names, for a gateway.
type found map[string]struct {
	description *grpc.ServiceDesc
	service     any
}

func (f found) RegisterService(d *grpc.ServiceDesc, service any) {
	f[d.ServiceName] = struct {
		description *grpc.ServiceDesc
		service     any
	}{d, service}
}

func (f found) find(name string) (*grpc.ServiceDesc, any, error) {
	s, ok := f[name]
	if !ok {
		return nil, nil, status.Error(codes.Unimplemented, "unknown service "+name)
	}
	return s.description, s.service, nil
}

// serveGateway is the API as JSON on a port.
func serveGateway(t testing.TB, change func(*gateway.Config)) (*httptest.Server, *lone) {
	t.Helper()
	store := newLone(t)
	cluster := &alone{}
	services, err := New(Config{Store: store, Cluster: cluster, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	watch, err := watches.New(watches.Config{Store: store, Cluster: cluster, Random: rand.Reader})
	if err != nil {
		t.Fatal(err)
	}
	services.Watch = watch
	all := found{}
	services.Register(all)
	config := gateway.Config{Find: all.find, Healthy: services.Healthy, Versions: services.Versions}
	if change != nil {
		change(&config)
	}
	handler, err := gateway.New(config)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(handler)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		watch.Wait()
	})
	return server, store
}

// posted is an answer, without what differs from cluster to cluster.
func posted(t testing.TB, address, path, body string) string {
	t.Helper()
	return postedWith(t, address, path, body, nil)
}

// postedWith is posted for a request with more headers.
func postedWith(t testing.TB, address, path, body string, headers http.Header) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
		"http://"+address+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	maps.Copy(request.Header, headers)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s %s", response.StatusCode, response.Header.Get("Content-Type"),
		likeAll(text))
}

var differs = regexp.MustCompile(`"(cluster_id|member_id|raft_term)":"\d+",?`)

func likeAll(text []byte) string {
	var compact bytes.Buffer
	if json.Compact(&compact, text) != nil {
		compact.Write(text)
	}
	text = differs.ReplaceAll(compact.Bytes(), nil)
	// errors vary on purpose
	return strings.NewReplacer(",}", "}", "\u00a0", " ").Replace(string(text))
}

// Requests as JSON are answered as etcd's gateway answers them.
func TestGatewayLikeEtcd(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	ours, _ := serveGateway(t, nil)
	for _, c := range []struct{ path, body string }{
		{"/v3/kv/put", `{"key":"Zm9v","value":"YmFy"}`},
		{"/v3/kv/put", `{"key":"Zm9v","value":"YmF6","prev_kv":true}`},
		{"/v3/kv/put", `{"key":"Zm9v","value":"YmF6","prevKv":true}`},
		{"/v3/kv/range", `{"key":"Zm9v"}`},
		{"/v3/kv/range", `{"key":"Zm9v"} and what else there is`},
		{"/v3/kv/range", `{"key":"AA==","range_end":"AA==","sort_order":"DESCEND","limit":"1"}`},
		{"/v3/kv/range", `{"key":"AA==","range_end":"AA==","sort_order":1,"limit":1}`},
		{"/v3/kv/range", `{"key":"Zm9v","count_only":true,"unknown":[{}]}`},
		{"/v3/kv/range", ``}, {"/v3/kv/range", `{}`},
		{"/v3/kv/range", `{"key":"Zm9v","revision":"99"}`},
		{"/v3/kv/txn", `{"compare":[{"target":"VERSION","key":"Zm9v","result":"GREATER","version":"0"}],
			"success":[{"request_put":{"key":"YQ==","value":"MQ=="}},{"request_range":{"key":"YQ=="}},
			{"requestDeleteRange":{"key":"YQ==","prev_kv":true}}]}`},
		{"/v3/kv/txn", `{"compare":[{"target":"CREATE","key":"Zm9v","create_revision":"0"}],
			"failure":[{"request_txn":{"success":[{"request_range":{"key":"Zm9v"}}]}}]}`},
		{"/v3/kv/txn", `{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}`},
		{"/v3/kv/deleterange", `{"key":"Zm9v","prev_kv":true}`},
		{"/v3/kv/deleterange", `{"key":"Zm9v"}`},
		{"/v3/kv/compaction", `{"revision":"3"}`}, {"/v3/kv/compaction", `{"revision":"3"}`},
		{"/v3/lease/grant", `{"TTL":"100","ID":"7"}`}, {"/v3/lease/grant", `{"TTL":100,"ID":7}`},
		{"/v3/lease/keepalive", `{"ID":"7"}`}, {"/v3/lease/keepalive", `{"ID":"8"}`},
		{"/v3/lease/keepalive", `{"ID":"7"}{"ID":7} {"ID":"9"}`}, {"/v3/lease/keepalive", ``},
		{"/v3/lease/leases", `{}`}, {"/v3/kv/lease/leases", ``},
		{"/v3/lease/timetolive", `{"ID":"8"}`}, {"/v3/kv/lease/timetolive", `{"ID":"8"}`},
		{"/v3/kv/put", `{"key":"YQ==","lease":"8"}`},
		{"/v3/lease/revoke", `{"ID":"8"}`}, {"/v3/kv/lease/revoke", `{"ID":"7"}`},
		{"/v3/lock/lock", `{"name":"bA==","lease":"7"}`}, {"/v3/lease/grant", `{"TTL":"100","ID":"9"}`},
		{"/v3/lock/lock", `{"name":"bA==","lease":"9"}`}, {"/v3/lock/unlock", `{"key":"bC85"}`},
		{"/v3/election/leader", `{"name":"ZQ=="}`},
		{"/v3/election/campaign", `{"name":"ZQ==","lease":"9","value":"dg=="}`},
		{"/v3/election/proclaim", `{"leader":{"name":"ZQ==","key":"ZS85","rev":"11","lease":"9"},
			"value":"dw=="}`},
		{"/v3/election/leader", `{"name":"ZQ=="}`}, {"/v3/election/resign", `{}`},
		{"/v3/election/resign", `{"leader":{"name":"ZQ==","key":"ZS85","rev":"11","lease":"9"}}`},
		{"/v3/maintenance/defragment", `{}`}, {"/v3/maintenance/alarm", `{}`},
		{"/v3/auth/authenticate", `{"name":"root","password":"x"}`},
		{"/v3/kv/nothing", `{}`}, {"/v3/", ``}, {"/v3/kv/range", `{"key":"?"}`},
		{"/v3/kv/range", `{"key":5}`}, {"/v3/kv/range", `[]`}, {"/v3/kv/range", `{"sort_order":"UP"}`},
	} {
		// Leases and a lock that a lease lacks have codes of their own here.
		want := posted(t, etcd.Endpoints()[0], c.path, c.body)
		got := posted(t, ours.Listener.Addr().String(), c.path, c.body)
		if want != got && !(strings.HasPrefix(want, "500 ") && errorText(want) == errorText(got)) {
			t.Errorf("%s %s\netcd: %s\nours: %s", c.path, c.body, want, got)
		}
	}
	pages := func() {
		t.Helper()
		for _, path := range []string{"/health", "/health?serializable=true", "/v3/kv/range",
			"/health?exclude=NOSPACE", "/health?exclude=NOSPACE&serializable=true",
			"/health?exclude=CORRUPT", "/health?exclude=CORRUPT&exclude=NOSPACE", "/health?exclude=",
			"/health?exclude=unknown&serializable=perhaps"} {
			want, got := getFrom(t, "http://"+etcd.Endpoints()[0]+path), getFrom(t, ours.URL+path)
			if want != got {
				t.Errorf("%s\netcd: %s\nours: %s", path, want, got)
			}
		}
	}
	pages()
	for _, alarm := range []string{"NOSPACE", "CORRUPT"} {
		change := func(action string) {
			for _, address := range []string{etcd.Endpoints()[0], ours.Listener.Addr().String()} {
				answer := posted(t, address, "/v3/maintenance/alarm",
					`{"action":"`+action+`","memberID":"1","alarm":"`+alarm+`"}`)
				if !strings.HasPrefix(answer, "200 ") {
					t.Errorf("%s %s at %s: %s", action, alarm, address, answer)
				}
			}
		}
		change("ACTIVATE")
		pages()
		change("DEACTIVATE")
	}
}

var messages = regexp.MustCompile(`"message":"[^"]*"`)

func errorText(answer string) string { return messages.FindString(answer) }

func getFrom(t testing.TB, url string) string {
	t.Helper()
	response, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%d %s", response.StatusCode, likeAll(text))
}

// Grpc-Timeout bounds a request as it does in etcd's gateway: calls that wait, streams, and values
// that are no timeouts.
func TestGatewayTimeoutLikeEtcd(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	ours, _ := serveGateway(t, nil)
	addresses := []string{etcd.Endpoints()[0], ours.Listener.Addr().String()}
	for _, address := range addresses {
		posted(t, address, "/v3/lease/grant", `{"TTL":"100","ID":"7"}`)
		posted(t, address, "/v3/lease/grant", `{"TTL":"100","ID":"8"}`)
		posted(t, address, "/v3/lock/lock", `{"name":"bA==","lease":"7"}`)
	}
	for _, c := range []struct{ path, body, timeout string }{
		{"/v3/kv/range", `{"key":"Zm9v"}`, "10S"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "000000000010S"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "10"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "10s"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "1.5S"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "S"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "0S"},
		{"/v3/kv/range", `{"key":"Zm9v"}`, "-1S"},
		{"/v3/kv/put", `{"key":"Zm9v"}`, "0S"},
		{"/v3/lock/lock", `{"name":"bA==","lease":"8"}`, "100m"},
		{"/v3/election/observe", `{"name":"ZQ=="}`, "100000u"},
		{"/v3/watch", `{"create_request":{"key":"Zm9v"}}`, "100000000n"},
		{"/v3/lease/keepalive", `{"ID":"7"}`, "10S"},
	} {
		var answers [2]string
		for i, address := range addresses {
			answers[i] = postedWith(t, address, c.path, c.body,
				http.Header{"Grpc-Timeout": {c.timeout}})
		}
		// Where the transport of etcd's gateway ends the call, the message is its own.
		ended := strings.NewReplacer("stream terminated by RST_STREAM with error code: CANCEL",
			"context deadline exceeded")
		if ended.Replace(answers[0]) != answers[1] {
			t.Errorf("%s %s within %s\netcd: %s\nours: %s", c.path, c.body, c.timeout, answers[0],
				answers[1])
		}
	}
}

// A request that is refused before its body is read does no harm to those that follow on its
// connection.
func TestGatewayAfterRefusal(t *testing.T) {
	server, _ := serveGateway(t, nil)
	address := server.Listener.Addr().String()
	for range 20 { // package http waits for the next request in a goroutine of its own
		for path, headers := range map[string]http.Header{"/v3/kv/put": {"Grpc-Timeout": {"bad"}},
			"/v3/nothing": nil} {
			if got := postedWith(t, address, path, `{"key":"Zm9v"}`, headers); !strings.HasPrefix(got,
				"40") {
				t.Fatalf("%s: %s", path, got)
			}
			if got := posted(t, address, "/v3/kv/put", `{"key":"Zm9v"}`); !strings.HasPrefix(got,
				"200 ") {
				t.Fatalf("after %s: %s", path, got)
			}
		}
	}
}

// streamed lines of a watch, of etcd's gateway and of this one.
func TestGatewayWatchLikeEtcd(t *testing.T) {
	etcd := reference.Test(t, reference.Options{Args: []string{"--unsafe-no-fsync"}})
	ours, _ := serveGateway(t, nil)
	var all [2][]string
	for i, address := range []string{etcd.Endpoints()[0], ours.Listener.Addr().String()} {
		w := openStream(t, address, "/v3/watch",
			`{"create_request":{"key":"Zm9v","prev_kv":true,"start_revision":"1"}}`)
		w.line()
		for _, c := range []struct{ path, body string }{
			{"/v3/kv/put", `{"key":"Zm9v","value":"MQ=="}`}, {"/v3/kv/put", `{"key":"Zm9v"}`},
			{"/v3/kv/deleterange", `{"key":"Zm9v"}`},
		} {
			posted(t, address, c.path, c.body)
			w.line()
		}
		all[i] = w.lines
		w.cancel()
		w = openStream(t, address, "/v3/watch", `{"create_request":{"key":"Zm9v"}} {"cancel_request":`+
			`{"watch_id":"0"}} {"progress_request":{}}`)
		w.line()
		w.line()
		all[i] = append(all[i], w.lines...)
		w.cancel()
		w = openStream(t, address, "/v3/election/observe", `{"name":"ZQ=="}`)
		posted(t, address, "/v3/lease/grant", `{"TTL":"100","ID":"7"}`)
		posted(t, address, "/v3/election/campaign", `{"name":"ZQ==","lease":"7","value":"dg=="}`)
		w.line()
		all[i] = append(all[i], w.lines...)
		w.cancel()
	}
	for i, want := range all[0] {
		if all[1][i] != want {
			t.Errorf("etcd: %s\nours: %s", want, all[1][i])
		}
	}
}

// lineStream is a stream's answer, line by line.
type lineStream struct {
	t       testing.TB
	cancel  context.CancelFunc
	scanner *bufio.Scanner
	ready   chan *http.Response
	lines   []string
}

func openStream(t testing.TB, address, path, body string) *lineStream {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path,
		strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	s := &lineStream{t: t, cancel: cancel, ready: make(chan *http.Response, 1)}
	go func() {
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			response = nil
		}
		s.ready <- response
	}()
	return s
}

// line waits for the next line.
func (s *lineStream) line() string {
	s.t.Helper()
	if s.scanner == nil {
		response := <-s.ready
		if response == nil {
			s.t.Fatal("no answer")
		}
		s.t.Cleanup(func() { _ = response.Body.Close() })
		s.scanner = bufio.NewScanner(response.Body)
		s.scanner.Buffer(nil, 64<<20)
	}
	if !s.scanner.Scan() {
		s.t.Fatalf("the stream has ended: %v", s.scanner.Err())
	}
	s.lines = append(s.lines, likeAll(s.scanner.Bytes()))
	return s.lines[len(s.lines)-1]
}

// A client that is gone gives up its place in a line.
func TestGatewayClientGoes(t *testing.T) {
	server, store := serveGateway(t, nil)
	address := server.Listener.Addr().String()
	posted(t, address, "/v3/lease/grant", `{"TTL":"100","ID":"7"}`)
	posted(t, address, "/v3/lease/grant", `{"TTL":"100","ID":"8"}`)
	posted(t, address, "/v3/lock/lock", `{"name":"bA==","lease":"7"}`)
	keys := func() string {
		return posted(t, address, "/v3/kv/range", `{"key":"bC8=","range_end":"bDA=","count_only":true}`)
	}
	s := openStream(t, address, "/v3/lock/lock", `{"name":"bA==","lease":"8"}`)
	until(t, "it waits", func() bool { return strings.Contains(keys(), `"count":"2"`) })
	s.cancel()
	<-s.ready
	until(t, "it is gone", func() bool { return strings.Contains(keys(), `"count":"1"`) })
	store.setLeads(t, false)
	if got := getFrom(t, server.URL+"/health"); !strings.HasPrefix(got,
		`503 {"health":"false","reason":"RAFT NO LEADER"}`) {
		t.Error(got)
	}
	if got := getFrom(t, server.URL+"/health?serializable=true"); !strings.HasPrefix(got, "200 ") {
		t.Error(got)
	}
	if got := getFrom(t, server.URL+"/version"); got !=
		`200 {"etcdserver":"`+Version+`","etcdcluster":"3.6.0","storage":"3.6.0"}` {
		t.Error(got)
	}
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for began := time.Now(); !holds(); time.Sleep(time.Millisecond) {
		if time.Since(began) > 20*time.Second {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// small is room for so many bytes.
type small struct{ left int64 }

func (s *small) Take(_ string, n int64) bool { s.left -= n; return s.left >= 0 }
func (s *small) Give(_ string, n int64)      { s.left += n }

// What is too large, too finely cut, too deep or too slow is refused, and so is another site's
// browser.
func TestGatewayHostile(t *testing.T) {
	room := &small{1 << 20}
	server, _ := serveGateway(t, func(c *gateway.Config) {
		c.MaxRequestBytes, c.MaxParts, c.ReadTimeout = 300<<10, 3000, 100*time.Millisecond
		c.Room = room
	})
	address := server.Listener.Addr().String()
	large := strings.Repeat("A", 400<<10)
	for _, c := range []struct{ path, body, want string }{
		{"/v3/kv/put", `{"key":"AA==","value":"` + large + `"}`, "429 .*too large"},
		{"/v3/kv/put", `{"key":"AA=="}` + large, "429 .*too large"},
		{"/v3/kv/put", large, "400 "},
		{"/v3/kv/txn", `{"success":[` + strings.Repeat("{},", 5000) + `{}]}`, "429 .*too many parts"},
		{"/v3/kv/txn", strings.Repeat(`{"success":[{"request_txn":`, 400), "400 "},
		{"/v3/kv/txn", strings.Repeat(`{"success":[{"request_txn":`, 400) + "{}" +
			strings.Repeat("}]}", 400), "400 "},
		{"/v3/kv/txn", strings.Repeat("[", 20000), "400 "},
		{"/v3/watch", `{"create_request":{"key":"` + large + `"}}`, "429 .*too large"},
		{"/v3/watch", `{"create_request":5}`, "400 "},
	} {
		got := posted(t, address, c.path, c.body)
		if !regexp.MustCompile(c.want).MatchString(got) {
			t.Errorf("%s %.40s: %s", c.path, c.body, got)
		}
	}
	slow, writer := io.Pipe()
	response, err := http.Post(server.URL+"/v3/kv/range", "", slow)
	if err != nil || response.StatusCode != http.StatusGatewayTimeout {
		t.Error(response, err)
	} else {
		_ = response.Body.Close()
	}
	_ = writer.Close()
	room.left = 10
	if got := posted(t, address, "/v3/kv/put", `{"key":"AA==","value":"AAAAAAAAAA=="}`); !strings.
		HasPrefix(got, "429 ") {
		t.Error(got)
	}
	room.left = 1 << 20
	request, err := http.NewRequest(http.MethodPost, server.URL+"/v3/kv/put",
		strings.NewReader(`{"key":"AA=="}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Origin", "https://elsewhere.example")
	if response, err = http.DefaultClient.Do(request); err != nil ||
		response.StatusCode != http.StatusForbidden {
		t.Error(response, err)
	} else {
		_ = response.Body.Close()
	}
	if room.left != 1<<20 {
		t.Errorf("%d bytes are not given back", 1<<20-room.left)
	}
}
