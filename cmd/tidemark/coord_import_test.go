package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// What an etcd has comes over, with its leases and revisions, and goes back.
func TestCoordImportAndExport(t *testing.T) {
	from := service(t)
	from.ok("coord", "del", "", "--prefix")
	lease, _, _ := strings.Cut(from.ok("lease", "grant", "1h", "-o", "raw"), "\t")
	for range 5 {
		from.ok("coord", "put", "other", "")
	}
	from.ok("coord", "put", "im/a", "1")
	from.ok("coord", "put", "im/a", "2")
	from.ok("coord", "put", "im/b", "3", "--lease", lease)
	dir := t.TempDir()
	saved := filepath.Join(dir, "etcd.db")
	from.ok("coord", "export", saved)
	from.fails(exit.Failed, "is there already", "coord", "export", saved)

	own, err := embedded.StartCluster(t.Context(), embedded.ClusterConfig{
		Dir: t.TempDir(), Nodes: 1, Cores: 1, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := own.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := own.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	to := shared{t, map[string]string{endpointsEnv: own.Endpoints()[0]}}
	to.ok("coord", "put", "x", "1")
	to.fails(exit.Usage, "only an empty store", "coord", "import", saved)
	to.ok("coord", "del", "x")
	to.fails(exit.NotFound, "no import", "coord", "import", "--abandon")
	to.fails(exit.Usage, "--abandon", "coord", "import")
	content, err := os.ReadFile(saved)
	if err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "cut.db")
	if err := os.WriteFile(cut, content[:len(content)-32], 0o600); err != nil {
		t.Fatal(err)
	}
	to.fails(exit.Failed, "--skip-hash-check", "coord", "import", cut)

	to.ok("coord", "import", saved, "-o", "json")
	to.fails(exit.Usage, "only an empty store", "coord", "import", saved)
	want := from.ok("coord", "get", "im/", "--prefix", "-o", "json")
	to.want(want, "coord", "get", "im/", "--prefix", "-o", "json")
	again := filepath.Join(dir, "again.db")
	to.ok("coord", "export", again)
	programs, err := reference.Install(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	member := filepath.Join(dir, "m1")
	if out, err := exec.CommandContext(t.Context(), programs.Etcdutl, "snapshot", "restore", again,
		"--data-dir", member, "--name", "m1", "--initial-cluster", "m1=http://127.0.0.1:1",
		"--initial-advertise-peer-urls", "http://127.0.0.1:1").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	etcd := reference.Test(t, reference.Options{Dir: dir, Args: []string{"--unsafe-no-fsync"}})
	back := shared{t, map[string]string{endpointsEnv: etcd.Endpoints()[0]}}
	back.want(want, "coord", "get", "im/", "--prefix", "-o", "json")
}
