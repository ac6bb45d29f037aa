package main

import (
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/admin"
	"github.com/tidemarkdb/tidemark/kv/coord"
	"github.com/tidemarkdb/tidemark/placement/etcdapi/etcdfile"
	"github.com/tidemarkdb/tidemark/rpc/coordpb"
)

// A restore fills the coordination store of an empty cluster: keys with their leases, at a higher
// revision, users, roles, and their rights for keyspaces, which have other ids there. It brings what
// placement may do, if that is asked for. A store that is not empty is left as it is.
func TestRestoreCoordination(t *testing.T) {
	from, to := emptyCluster(t), emptyCluster(t)
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
	at := "file://" + t.TempDir()
	to.ok("keyspace", "create", "shifts-ids", "--partitions", "hash:1", "--replicas", "1")
	from.ok("keyspace", "create", "data", "--partitions", "hash:2", "--replicas", "1")
	from.ok("put", "data", "app/1", "one")
	from.ok("coord", "put", "app/a", "1")
	from.ok("coord", "put", "app/a", "2")
	from.ok("coord", "put", "gone", "x")
	from.ok("coord", "del", "gone")
	from.ok("auth", "user", "add", "root", "--new-password-file", root)
	from.ok("auth", "user", "grant", "root", "root")
	from.ok("auth", "user", "add", "app", "--new-password-file", app)
	from.ok("auth", "role", "add", "apps")
	from.ok("auth", "role", "grant", "apps", "readwrite", "app/", "--prefix")
	from.ok("auth", "role", "grant", "apps", "readwrite", "app/", "--prefix", "--keyspace", "data")
	from.ok("auth", "user", "grant", "app", "apps")
	from.ok("auth", "enable")
	from.ok(as("root", root, "placement", "limits", "--repair-delay", "7m")...)
	made := strings.Split(from.ok(as("root", root, "backup", "create", at, "-q", "-o", "tsv")...), "\t")
	if made[1] != "complete" {
		t.Fatalf("%q", made)
	}

	to.fails(exit.Usage, "leaves nothing", "restore", at, "--no-keyspaces")
	to.fails(exit.Usage, "leave out --keyspaces", "restore", at, "--no-keyspaces", "--coordination",
		"--keyspaces", "data")
	to.ok("coord", "put", "there", "1")
	if got := to.run("", exit.Failed, "restore", at, "--coordination", "-q"); !strings.Contains(got.err,
		"only if it is empty") {
		t.Errorf("into a store that is not empty: %s", got.err)
	}
	if left := to.ok("keyspace", "list", "-o", "tsv"); strings.Contains(left, "data") {
		t.Errorf("a refused restore has made keyspaces: %s", left)
	}
	to.want("1", "coord", "get", "there", "-o", "raw")
	to.ok("coord", "del", "there")

	to.ok(as("root", root, "restore", at, "--coordination", "--settings", "-q")...)
	to.fails(exit.Failed, "give --user", "coord", "get", "app/a")
	to.want("2", as("app", app, "coord", "get", "app/a", "-o", "raw")...)
	to.want("one", as("app", app, "get", "data", "app/1", "-o", "raw")...)
	to.fails(exit.Failed, "may not", as("app", app, "get", "data", "other")...)
	to.fails(exit.NotFound, "", as("root", root, "coord", "get", "gone")...)
	limits := from.ok(as("root", root, "placement", "show", "-o", "tsv")...)
	if got := to.ok(as("root", root, "placement", "show", "-o", "tsv")...); got != limits ||
		!strings.Contains(got, "7m") {
		t.Errorf("limits %s, want %s", got, limits)
	}
	if got := from.local(exit.OK, "backup", "show", at, made[0], "--settings", "-o",
		"tsv").out; got != limits {
		t.Errorf("settings in the backup %s, want %s", got, limits)
	}
	got := rows(t, to.ok(as("app", app, "coord", "get", "app/a", "-o", "json")...))
	want := rows(t, from.ok(as("app", app, "coord", "get", "app/a", "-o", "json")...))
	if len(got) != 1 || len(want) != 1 || got[0]["revision"] != want[0]["revision"] {
		t.Errorf("%v, want %v", got, want)
	}
	if got := to.run("", exit.Failed, as("root", root, "restore", at, "--coordination",
		"--no-keyspaces", "-q")...); !strings.Contains(got.err, "only if it is empty") {
		t.Errorf("a second time: %s", got.err)
	}
}

// A new leader of the core goes on with the coordination store where the one before it has stopped:
// what it sees is that users have come, and the first keys.
func TestRestoreGoesOnWithCoordination(t *testing.T) {
	from, to := emptyCluster(t), emptyCluster(t)
	ctx := t.Context()
	at, path := "file://"+t.TempDir(), filepath.Join(t.TempDir(), "coord.db")
	for i := range 9 {
		from.ok("coord", "put", fmt.Sprint("key", i), fmt.Sprint(i))
	}
	from.ok("auth", "role", "add", "apps")
	from.ok("auth", "user", "add", "app", "--no-password")
	from.ok("auth", "user", "grant", "app", "apps")
	made := strings.Split(from.ok("backup", "create", at, "-q", "-o", "tsv"), "\t")
	from.local(exit.OK, "backup", "coordination", at, made[0], path)
	file, err := etcdfile.Open(ctx, path, etcdfile.Options{WithoutSum: true})
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()

	// What the leader has done before it stopped. The id of the import is made of the restore's.
	const restore = "20260131T120000Z-1a2b3c4d"
	sum := fnv.New64a()
	_, _ = sum.Write([]byte(restore)) // it never fails
	client, err := coord.Connect(ctx, []string{to.environment[endpointsEnv]})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	importing := coordpb.NewImportClient(client.Etcd().ActiveConnection())
	if _, err := importing.Auth(ctx, file.ImportedAuth()); err != nil {
		t.Fatal(err)
	}
	steps := file.Steps(sum.Sum64() | 1)
	steps.Revision = file.Revision + 1000
	step, err := steps.Next(&coordpb.ImportState{})
	if err != nil {
		t.Fatal(err)
	}
	step.Keys, step.End = step.Keys[:4], false
	if _, err := importing.Step(ctx, step); err != nil {
		t.Fatal(err)
	}

	data, err := kv.Open(ctx, []string{to.environment[endpointsEnv]})
	if err != nil {
		t.Fatal(err)
	}
	defer data.Close()
	job, err := admin.New(data).CreateBackup(ctx, admin.BackupOptions{ID: restore, Target: at,
		Restore: &admin.RestoreOptions{Backup: made[0], Coordination: true, NoKeyspaces: true}})
	if err != nil {
		t.Fatal(err)
	}
	for !job.Over() {
		if job, err = admin.New(data).Backup(ctx, restore); err != nil {
			t.Fatal(err)
		}
	}
	if job.State != admin.BackupComplete {
		t.Fatalf("%+v", job)
	}
	for i := range 9 {
		to.want(fmt.Sprint(i), "coord", "get", fmt.Sprint("key", i), "-o", "raw")
	}
	to.want("app\n", "auth", "user", "list", "-o", "raw")
	state, err := client.Etcd().Get(ctx, "key0")
	if err != nil || state.Header.Revision != int64(file.Revision)+1000 {
		t.Errorf("at %v: %v", state.Header, err)
	}
}
