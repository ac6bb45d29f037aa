package main

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/range/backup/catalog"
	"github.com/tidemarkdb/tidemark/range/backup/target"
)

// A drill restores a chain of backups into a cluster of its own and finds it equal; its directory is
// gone afterwards. Records that differ are counted and named.
func TestBackupDrill(t *testing.T) {
	b := cluster(t)
	at := "file://" + t.TempDir()
	b.ok("keyspace", "create", "drill-range", "--partitions", "range", "--split-at", "k5")
	b.ok("keyspace", "create", "drill-hash", "--partitions", "hash:4")
	for _, ks := range []string{"drill-range", "drill-hash"} {
		var records strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&records, "k%03d\tvalue %d\n", i, i)
		}
		b.run(records.String(), exit.OK, "load", ks)
		b.ok("put", ks, "expires", "x", "--ttl", "1h")
	}
	create := []string{"backup", "create", at, "--keyspaces", "drill-*", "-q"}
	b.ok(create...)
	b.ok("delete", "drill-hash", "k007")
	b.ok("put", "drill-range", "k007", "another")
	b.ok(append(create, "--incremental")...)

	dir := t.TempDir()
	got := b.local(exit.OK, "backup", "drill", at, "--dir", dir, "-o", "tsv")
	if !strings.Contains(got.out, "drill-range\t1001\t0\t0\t") ||
		!strings.Contains(got.out, "drill-hash\t1000\t0\t0\t") {
		t.Errorf("the drill found\n%s%s", got.out, got.err)
	}
	for _, words := range []string{"3 nodes", "restoring the backup"} {
		if !strings.Contains(got.err, words) {
			t.Errorf("the drill said %q, want %q in it", got.err, words)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left over: %v, %v", left, err)
	}
	b.localFails(exit.NotFound, "no such keyspace", "backup", "drill", at, "--keyspaces", "none")
	b.localFails(exit.NotFound, "no complete backup", "backup", "drill", "file://"+t.TempDir())
	b.localFails(exit.Usage, "id of a backup", "backup", "drill", at, "newest")
	b.localFails(exit.Usage, "--nodes", "backup", "drill", at, "--nodes", "-1")

	// The cluster that was backed up has changed since: in the place of a restored one, it differs.
	b.ok("delete", "drill-hash", "k008")
	b.ok("put", "drill-hash", "more\tof it", "x")
	b.ok("put", "drill-range", "k100", "changed")
	b.ok("put", "drill-range", "expires", "x", "--ttl", "2h")
	var out, said bytes.Buffer
	store, err := target.Open(t.Context(), at, target.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	client, err := kv.Open(t.Context(), oneCluster.cluster.Endpoints())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	d := &restoreDrill{app: &app{streams: streams{out: &out, err: &said}, format: output.TSV},
		flags: drillFlags{restoreFlags: restoreFlags{quiet: true}}, catalog: catalog.New(store, nil),
		url: at}
	if err := d.choose(t.Context()); err != nil {
		t.Fatal(err)
	}
	err = d.compare(t.Context(), client)
	if code := exit.Code(t.Context(), err); code != exit.Degraded {
		t.Errorf("exit code %d: %v", code, err)
	}
	for _, words := range []string{"k008 (missing)", `more\tof it (not in the backup)`,
		"k100 (another value)", "expires (another expiry)"} {
		if err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%v: want %q in it", err, words)
		}
	}
	if !strings.Contains(out.String(), "drill-range\t1001\t0\t2\t") ||
		!strings.Contains(out.String(), "drill-hash\t1000\t0\t2\t") {
		t.Errorf("the comparison found\n%s", &out)
	}
}
