package main

import (
	goversion "go/version"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// sdkPackages are the project's packages that a program gets with kv, and sdkModules the modules:
// what an application that only talks to a cluster has to compile, and to keep compatible with its
// other dependencies. No storage engine, no Raft, no server.
var (
	sdkPackages = []string{
		"hlc", "kv", "kv/internal/changes", "kv/internal/conn", "kv/internal/feed",
		"kv/internal/frontier", "kv/internal/load", "kv/internal/reader", "kv/internal/reads",
		"kv/internal/sorting", "kv/internal/whole", "kv/internal/writes",
		"range/admission", "range/invariants", "range/keys", "range/route", "range/route/calltrace", "range/route/clock",
		"range/route/follow", "range/route/identity", "range/route/lifetime", "range/route/nodes",
		"range/route/table", "range/tree",
		"rpc/backoff", "rpc/block", "rpc/client", "rpc/clusterpb", "rpc/coordpb", "rpc/diagnosispb", "rpc/kvpb",
		"rpc/metric", "rpc/nonblock", "rpc/outbox", "rpc/outcome", "rpc/peerpb",
		"rpc/transport", "rpc/wire",
		"txn", "txn/committer",
	}
	sdkModules = []string{
		module,
		"github.com/golang/snappy", "github.com/planetscale/vtprotobuf",
		"github.com/RaduBerinde/btreemap", "github.com/cespare/xxhash/v2",
		"go.opentelemetry.io/otel", "go.opentelemetry.io/otel/trace",
		"golang.org/x/net", "golang.org/x/sys", "golang.org/x/text",
		"google.golang.org/genproto/googleapis/rpc", "google.golang.org/grpc",
		"google.golang.org/protobuf",
	}
)

// The SDK brings no server into a program that uses it.
func TestSDKImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f",
		"{{if not .Standard}}{{.ImportPath}} {{.Module.Path}}{{end}}", module+"/kv").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	seen := make(map[string]bool)
	for line := range strings.Lines(string(out)) {
		path, of, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		seen[of], seen[strings.TrimPrefix(path, module+"/")] = true, true
		if !slices.Contains(sdkModules, of) {
			t.Errorf("kv brings %s of module %s with it", path, of)
		}
		if ours, ok := strings.CutPrefix(path, module+"/"); ok && !slices.Contains(sdkPackages, ours) {
			t.Errorf("kv brings %s with it", ours)
		}
	}
	for _, listed := range slices.Concat(sdkPackages, sdkModules) {
		if !seen[listed] {
			t.Errorf("kv no longer brings %s with it: take it off the list", listed)
		}
	}
}

// go.mod asks for no newer Go than the modules that the build needs.
func TestGoVersion(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "-f",
		"{{with .Module}}{{.Path}} {{.GoVersion}}{{end}}", module+"/...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	ours, newest, of := "", "", ""
	for line := range strings.Lines(string(out)) {
		path, version, ok := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case !ok:
		case path == module:
			ours = version
		case goversion.Compare("go"+version, "go"+newest) > 0:
			newest, of = version, path
		}
	}
	if ours == "" || newest == "" || goversion.Compare("go"+ours, "go"+newest) > 0 {
		t.Errorf("go.mod asks for Go %s; the newest that a dependency asks for is %s (%s)",
			ours, newest, of)
	}
}
