package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// Users guard the data of keyspaces: what a user may do by commands while authentication is on,
// through a server that is no member of the core.
func TestUsersOfKeyspaces(t *testing.T) {
	cluster, err := embedded.StartCluster(t.Context(), embedded.ClusterConfig{Dir: t.TempDir(),
		Nodes: 2, Cores: 1, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	at := cluster.Endpoints()
	core, b := shared{t, map[string]string{endpointsEnv: at[0]}},
		shared{t, map[string]string{endpointsEnv: at[1]}}
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root, app := file("root", "secret\n"), file("app", "of the app\n")
	as := func(user, password string, args ...string) []string {
		return append(args, "--user", user, "--password-file", password)
	}
	b.ok("keyspace", "create", "data", "--partitions", "range", "--split-at", "app/5",
		"--replicas", "1")
	b.ok("keyspace", "create", "other", "--partitions", "hash:2", "--replicas", "1")
	b.ok("put", "data", "app/1", "before")
	b.ok("put", "data", "secret", "of root")
	core.ok("auth", "user", "add", "root", "--new-password-file", root)
	core.ok("auth", "user", "grant", "root", "root")
	core.ok("auth", "user", "add", "app", "--new-password-file", app)
	core.ok("auth", "role", "add", "apps")
	core.ok("auth", "role", "grant", "apps", "readwrite", "app/", "--prefix", "--keyspace", "data")
	core.ok("auth", "user", "grant", "app", "apps")
	core.ok("auth", "enable")

	// A server that is no member of the core hears of the change within Config.Grace of authcache.
	b.until(exit.Failed, "get", "data", "app/1")
	b.fails(exit.Failed, "give --user", "get", "data", "app/1")
	b.fails(exit.Failed, "authentication failed", as("app", root, "get", "data", "app/1")...)
	b.want("before", as("app", app, "get", "data", "app/1", "-o", "raw")...)
	b.ok(as("app", app, "put", "data", "app/7", "after")...)
	b.ok(as("app", app, "scan", "data", "--prefix", "app/")...)
	b.ok(as("app", app, "count", "data", "--prefix", "app/")...)
	b.ok(as("app", app, "cas", "data", "app/1", "swapped", "--expect", "before")...)
	b.ok(as("app", app, "delete", "data", "app/7")...)
	for _, args := range [][]string{{"get", "data", "secret"}, {"put", "data", "secret", "mine"},
		{"scan", "data"}, {"count", "data"}, {"delete", "data", "secret"}, {"get", "other", "app/1"},
		{"put", "other", "app/1", "x"}, {"changes", "data"}, {"txn", "list", "data"}} {
		got := b.run("", exit.Failed, as("app", app, args...)...)
		if !strings.Contains(got.err, `user "app" may not`) || strings.Contains(got.out, "of root") {
			t.Errorf("%q printed %q and said %q", args, got.out, got.err)
		}
	}
	b.want("of root", as("root", root, "get", "data", "secret", "-o", "raw")...)

	core.ok(as("root", root, "auth", "disable")...)
	b.until(exit.OK, "get", "data", "secret")
}
