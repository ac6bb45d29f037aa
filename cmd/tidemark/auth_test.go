package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// Users and roles from the first to the last, against a service of its own: it ends up guarded.
func TestAuth(t *testing.T) {
	etcd := reference.Test(t, reference.Options{
		Args: []string{"--unsafe-no-fsync", "--bcrypt-cost", "4"}})
	b := shared{t, map[string]string{endpointsEnv: strings.Join(etcd.Endpoints(), ",")}}
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	root, app := file("root", "secret\n"), file("app", "of the app")
	as := func(user, password string, args ...string) []string {
		return append(args, "--user", user, "--password-file", password)
	}
	b.fails(exit.Usage, "no user root", "auth", "enable")
	b.ok("auth", "user", "add", "root", "--new-password-file", root)
	b.fails(exit.Usage, "does not have the role root", "auth", "enable")
	b.ok("auth", "user", "grant", "root", "root")
	b.fails(exit.Usage, "--new-password-file", "auth", "user", "add", "app")
	b.fails(exit.Usage, "one line", "auth", "user", "add", "app", "--new-password-file",
		file("two", "a\nb\n"))
	b.run("of the app\n", exit.OK, "auth", "user", "add", "app", "--new-password-file", "-")
	b.ok("auth", "user", "add", "machine", "--no-password")
	b.fails(exit.Conflict, "already", "auth", "user", "add", "machine", "--no-password")
	b.ok("auth", "role", "add", "apps")
	b.ok("auth", "role", "grant", "apps", "readwrite", "app/", "--prefix")
	b.ok("auth", "role", "grant", "apps", "read", "config/colour")
	b.fails(exit.Usage, "read, write or readwrite", "auth", "role", "grant", "apps", "eat", "a")
	b.ok("auth", "user", "grant", "app", "apps")
	b.ok("auth", "enable")

	b.fails(exit.Failed, "give --user", "coord", "get", "app/a")
	b.ok(as("app", app, "coord", "put", "app/a", "1")...)
	b.fails(exit.Failed, "permission denied", as("app", app, "coord", "put", "b", "1")...)
	b.fails(exit.Failed, "authentication failed", as("app", root, "coord", "get", "app/a")...)
	b.fails(exit.Usage, "--user", "coord", "get", "app/a", "--password-file", root)
	b.fails(exit.Usage, "use one", as("app:x", root, "coord", "get", "app/a")...)
	if got := rows(t, b.ok(as("app", app, "auth", "status", "-o", "json")...)); len(got) != 1 ||
		got[0]["enabled"] != true {
		t.Errorf("%v", got)
	}
	b.want("app\nmachine\nroot\n", as("root", root, "auth", "user", "list", "-o", "raw")...)
	b.want("apps\n", as("app", app, "auth", "user", "show", "app", "-o", "raw")...)
	b.want("apps\n", as("root", root, "auth", "role", "list", "-o", "raw")...)
	shown := rows(t, b.ok(as("app", app, "auth", "role", "show", "apps", "-o", "json")...))
	if len(shown) != 2 || shown[0]["may"] != "readwrite" || shown[0]["key"] != "app/" ||
		shown[0]["end"] != "app0" || shown[1]["may"] != "read" || shown[1]["end"] != nil {
		t.Errorf("%v", shown)
	}
	if token := b.ok(as("app", app, "auth", "login", "-o", "raw")...); len(token) < 10 {
		t.Errorf("token %q", token)
	}
	b.fails(exit.Failed, "authentication failed", as("app", root, "auth", "login")...)
	b.fails(exit.Usage, "give --user", "auth", "login")

	b.ok(as("root", root, "auth", "user", "password", "app", "--new-password-file", root)...)
	b.ok(as("app", root, "coord", "get", "app/a")...)
	b.ok(as("root", root, "auth", "role", "revoke", "apps", "app/", "--prefix")...)
	b.fails(exit.NotFound, "exactly these keys", as("root", root, "auth", "role", "revoke", "apps",
		"app/")...)
	b.fails(exit.Failed, "permission denied", as("app", root, "coord", "get", "app/a")...)
	b.ok(as("root", root, "auth", "user", "revoke", "app", "apps")...)
	b.fails(exit.NotFound, "does not have", as("root", root, "auth", "user", "revoke", "app",
		"apps")...)
	b.ok(as("root", root, "auth", "role", "delete", "apps")...)
	b.ok(as("root", root, "auth", "user", "delete", "app")...)
	b.fails(exit.NotFound, "no user", as("root", root, "auth", "user", "delete", "app")...)
	b.fails(exit.Usage, "has to keep", as("root", root, "auth", "user", "delete", "root")...)
	b.ok(as("root", root, "auth", "disable")...)
	b.ok("coord", "put", "b", "1")
}
