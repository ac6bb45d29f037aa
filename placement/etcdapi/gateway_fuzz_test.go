package etcdapi

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

var fuzzPaths = []string{"/v3/kv/range", "/v3/kv/put", "/v3/kv/deleterange", "/v3/kv/txn",
	"/v3/kv/compaction", "/v3/watch", "/v3/lease/grant", "/v3/lease/keepalive", "/v3/lease/revoke",
	"/v3/lease/timetolive", "/v3/cluster/member/list", "/v3/cluster/member/add",
	"/v3/maintenance/alarm", "/v3/maintenance/hashkv", "/v3/auth/authenticate", "/v3/lock/lock",
	"/v3/lock/unlock", "/v3/election/campaign", "/v3/election/proclaim", "/v3/election/leader",
	"/v3/election/observe", "/v3/election/resign"}

// Whatever is posted is answered with JSON, one value or one a line.
func FuzzGateway(f *testing.F) {
	server, _ := serveGateway(f, nil)
	for i, body := range []string{`{"key":"Zm9v"}`, `{"key":"Zm9v","value":"MQ=="}`, `{"key":"AA=="}`,
		`{"compare":[{"target":"MOD","key":"AA=="}],"success":[{"request_txn":{}}]}`,
		`{"revision":"1"}`,
		`{"create_request":{"key":"AA==","range_end":"AA==","start_revision":1}}` +
			`{"progress_request":{}}`,
		`{"TTL":5,"ID":"7"}`, `{"ID":"7"} {"ID":-1}`, `{}`, ``, `{"linearizable":true}`,
		`{"peerURLs":["http://a:1"]}`, `{"action":"ACTIVATE"}`, `{"revision":"-1"}`, `{"name":"a"}`,
		`{"name":"bA==","lease":"7"}`, `[1,2`, `{"name":"ZQ==","lease":"7"}`, `{"leader":{}}`, `nul`,
		`"\u0000"`, `{"leader":null}`} {
		f.Add(uint8(i), body)
	}
	f.Fuzz(func(t *testing.T, path uint8, body string) {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, http.MethodPost,
			fuzzPaths[int(path)%len(fuzzPaths)], strings.NewReader(body))
		w := httptest.NewRecorder()
		server.Config.Handler.ServeHTTP(w, r)
		decoder := json.NewDecoder(w.Body)
		for decoder.More() {
			var value map[string]any
			if err := decoder.Decode(&value); err != nil {
				t.Fatalf("%d: %v", w.Code, err)
			}
		}
	})
}
