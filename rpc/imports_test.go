package rpc

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// The rooms of rpc stand on each other in one order, and on little else of the project: the server
// on all of them but the client's, memnet, nonblock, quota and access on nothing at all, and
// transport on nonblock, but that it takes part in gRPC's handshake.
func TestImports(t *testing.T) {
	const module = "github.com/tidemarkdb/tidemark/"
	allowed := map[string][]string{
		".": {module + "rpc/access", module + "rpc/authn", module + "rpc/kvpb", module + "rpc/limit",
			module + "rpc/metric", module + "rpc/outbox", module + "rpc/peer", module + "rpc/peerpb",
			module + "rpc/quota", module + "rpc/transport", module + "rpc/wire"},
		"backoff": nil, "memnet": {module + "rpc/backoff"}, "nonblock": nil, "quota": {"golang.org/x/time/rate"}, "access": nil,
		"client": {module + "rpc/backoff", module + "rpc/nonblock", module + "rpc/outbox", module + "rpc/transport",
			module + "rpc/wire", module + "rpc/kvpb"},
		"peer": {module + "rpc/client", module + "rpc/outbox", module + "rpc/transport",
			module + "rpc/wire", module + "rpc/metric", module + "rpc/peerpb",
			module + "range/admission"},
		"limit": {module + "rpc/authn", module + "rpc/backoff", module + "rpc/quota", module + "rpc/nonblock",
			module + "rpc/wire", module + "rpc/metric", module + "rpc/kvpb",
			module + "range/admission"},
		"authn": {module + "rpc/backuppb", module + "rpc/clusterpb", module + "rpc/diagnosispb",
			module + "rpc/peerpb", module + "rpc/transport", module + "rpc/metric"},
		"outbox": {module + "rpc/transport", module + "rpc/wire"},
		"wire": {module + "hlc", module + "rpc/kvpb", module + "rpc/clusterpb",
			module + "rpc/peerpb", module + "rpc/transport"},
		"transport": {"google.golang.org/grpc/codes", "google.golang.org/grpc/credentials",
			"google.golang.org/grpc/credentials/insecure", "google.golang.org/grpc/status",
			"golang.org/x/net/http2", "golang.org/x/sys/unix", module + "rpc/nonblock"},
	}
	mayUseModules := map[string]bool{".": true, "wire": true, "outbox": true, "authn": true,
		"limit": true, "client": true, "peer": true}
	for dir, list := range allowed {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				path := strings.Trim(spec.Path.Value, `"`)
				if path == module+"range/invariants" {
					continue
				}
				standard := !strings.Contains(strings.SplitN(path, "/", 2)[0], ".")
				ok := standard || mayUseModules[dir] && !strings.HasPrefix(path, module)
				for _, a := range list {
					ok = ok || path == a
				}
				if !ok {
					t.Errorf("%s imports %s", file, path)
				}
			}
		}
	}
}
