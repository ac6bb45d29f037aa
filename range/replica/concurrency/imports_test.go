package concurrency

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The package knows neither replicas nor requests.
func TestImports(t *testing.T) {
	const module = "github.com/tidemarkdb/tidemark/"
	allowed := []string{"hlc", "range/admission", "range/invariants", "range/keys", "range/mvcc",
		"range/replica/concurrency/locks", "rpc", "rpc/kvpb", "rpc/wire", "txn"}
	for _, dir := range []string{".", "locks"} {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatal(files, err)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				path, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module)
				if own && !slices.Contains(allowed, path) {
					t.Errorf("%s imports %s", file, path)
				}
			}
		}
	}
}
