package embedded

import (
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/deploy/embedded/memory"
)

// TestTooLittleMemory: a server does not start with less memory than it needs, says how much that
// is, and starts with as much.
func TestTooLittleMemory(t *testing.T) {
	config := ServerConfig{Dir: t.TempDir(), Listen: "127.0.0.1:0", Core: []string{"127.0.0.1:1"},
		Roles: []string{RoleNode}, MemoryLimit: 64 << 20}
	server, err := StartServer(t.Context(), config)
	if err == nil {
		_ = server.Close(t.Context())
		t.Fatal("a server has started with 64 MiB")
	}
	var little *memory.TooLittle
	if !errors.As(err, &little) || !strings.Contains(err.Error(), "at least") {
		t.Fatal(err)
	}
	t.Log(err)
	config.MemoryLimit = little.Least
	if server, err = StartServer(t.Context(), config); err != nil {
		t.Fatal(err)
	}
	if err := server.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestServersShareMemory: the servers of a process divide what the process may use, and say so.
func TestServersShareMemory(t *testing.T) {
	const limit = 3 << 30
	cluster, err := StartCluster(t.Context(), ClusterConfig{Dir: t.TempDir(), Nodes: 3, Cores: 1,
		Listen: "127.0.0.1:0", MemoryLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	}()
	for i, s := range cluster.servers {
		if s.memory.Limit != limit/3 {
			t.Errorf("server %d may use %d bytes", i, s.memory.Limit)
		}
		families, err := cluster.configs[i].Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got, sum := 0.0, 0.0
		for _, f := range families {
			for _, m := range f.Metric {
				switch f.GetName() {
				case "tidemark_memory_limit_bytes":
					got = m.GetGauge().GetValue()
				case "tidemark_memory_part_bytes":
					sum += m.GetGauge().GetValue()
				}
			}
		}
		if got != limit/3 || sum <= limit/6 || sum > limit/3 {
			t.Errorf("server %d: the metrics are %v, and %v for its parts", i, got, sum)
		}
		mux := http.NewServeMux()
		s.debugPages(mux)
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug/memory", nil))
		text, err := io.ReadAll(w.Result().Body)
		if err != nil || !strings.Contains(string(text), `"limit": 1073741824`) ||
			!strings.Contains(string(text), `"name": "requests"`) {
			t.Errorf("the page is %s, %v", text, err)
		}
	}
}

// TestCollectorLimit: Go's memory limit is set, unless the environment has one, and leaves out what
// is allocated beside Go.
func TestCollectorLimit(t *testing.T) {
	before, percent := debug.SetMemoryLimit(-1), debug.SetGCPercent(100)
	defer func() {
		debug.SetMemoryLimit(before)
		debug.SetGCPercent(percent)
	}()
	debug.SetMemoryLimit(math.MaxInt64)
	memory.TuneCollector(memory.Collector{GOGC: "100", GOMEMLIMIT: "1GiB", Limit: 2 << 30})
	if got := debug.SetMemoryLimit(-1); got != math.MaxInt64 {
		t.Errorf("the limit of the environment was replaced by %d", got)
	}
	memory.TuneCollector(memory.Collector{GOGC: "100", Limit: 2 << 30})
	sizes, err := memory.Divide(2<<30, memory.Needs{Node: true, Core: true})
	if err != nil {
		t.Fatal(err)
	}
	want := int64(2 << 30)
	if memory.TablesOutsideGo {
		want -= sizes.Tables()
	}
	if got := debug.SetMemoryLimit(-1); got != want {
		t.Errorf("the limit is %d, want %d", got, want)
	}
	// The default of servers that start now is not what was set here.
	if before, after := memory.Find(math.MaxInt64), findMemory(0); after != before &&
		after.Bytes != environmentLimit {
		t.Errorf("the default limit is %+v, and was %+v", after, before)
	}
}
