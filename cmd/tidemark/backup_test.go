package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// sortedLines are the lines of a text in order: records of hash keyspaces come in another one from
// a backup than from a dump.
func sortedLines(text string) []string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	slices.Sort(lines)
	return lines
}

// local runs a command that asks no cluster.
func (b shared) local(code int, args ...string) result {
	b.t.Helper()
	got := command(b.t, "", nil, args...)
	if got.code != code {
		b.t.Fatalf("%q: exit code %d, want %d\nstdout: %.2000s\nstderr: %.2000s", args, got.code, code,
			got.out, got.err)
	}
	return got
}

// localFails runs a command that asks no cluster, must fail with a code, and says something.
func (b shared) localFails(code int, words string, args ...string) {
	b.t.Helper()
	if got := b.local(code, args...); !strings.Contains(got.err, words) || got.out != "" {
		b.t.Errorf("%q: printed %q and said %q, want %q in it", args, got.out, got.err, words)
	}
}

// A chain of backups has the records as they were at the moment of each backup, while writes go on.
func TestBackups(t *testing.T) {
	b := cluster(t)
	at := "file://" + t.TempDir()
	b.ok("keyspace", "create", "backup-range", "--partitions", "range", "--split-at", "k3",
		"--split-at", "k6")
	b.ok("keyspace", "create", "backup-hash", "--partitions", "hash:8")
	b.ok("keyspace", "create", "left-out", "--partitions", "hash:1")
	both := []string{"backup-range", "backup-hash"}
	var records strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&records, "k%03d\tvalue %d\n", i, i)
	}
	for _, ks := range both {
		b.run(records.String(), exit.OK, "load", ks)
		b.ok("put", ks, "soon gone", "x", "--ttl", "1h")
		b.ok("put", ks, "bin\\xff", "a\\tb", "--escaped")
	}
	create := []string{"backup", "create", at, "--keyspaces", "backup-*", "-q", "-o", "tsv"}
	compare := func(id, moment string) {
		t.Helper()
		for _, ks := range both {
			got := b.local(exit.OK, "backup", "cat", at, id, ks).out
			want := b.ok("dump", ks, "--at", moment)
			if !slices.Equal(sortedLines(got), sortedLines(want)) {
				t.Errorf("%s of %s:\n%.400s\nwant\n%.400s", ks, id, got, want)
			}
			if ks == "backup-range" && got != want {
				t.Errorf("%s of %s is in another order than its dump", ks, id)
			}
		}
	}
	full := strings.Split(b.ok(create...), "\t")
	if full[1] != "complete" || full[2] != "full" || full[6] != "2004" {
		t.Fatalf("%q", full)
	}
	compare(full[0], full[3])

	// Changes of all kinds, a split, and a keyspace that is new.
	for _, ks := range both {
		b.ok("delete", ks, "k001")
		b.ok("put", ks, "k002", "changed")
		b.ok("put", ks, "new", "added")
		b.ok("delete", ks, "new")
	}
	b.ok("split", "backup-range", "--at", "k2", "--wait")
	b.ok("keyspace", "create", "backup-new", "--partitions", "hash:2")
	b.ok("put", "backup-new", "a", "1")
	next := strings.Split(b.ok(append(create, "--incremental")...), "\t")
	if next[1] != "complete" || next[2] != "incremental" {
		t.Fatalf("%q", next)
	}
	compare(next[0], next[3])
	compare(full[0], full[3])
	if got := b.local(exit.OK, "backup", "cat", at, next[0], "backup-new").out; got != "a\t1\n" {
		t.Errorf("backup-new: %q", got)
	}
	if got := b.local(exit.OK, "backup", "cat", at, next[0], "backup-hash", "--prefix",
		"k002").out; got != "k002\tchanged\n" {
		t.Errorf("a part of backup-hash: %q", got)
	}

	// A restore under other names gives the same records with the same expiries.
	wasThere := b.ok("dump", "backup-range", "--at", next[3])
	if got := b.run("", exit.Failed, "restore", at, "-q"); !strings.Contains(got.err,
		"there is a keyspace") {
		t.Errorf("a restore over what is there: %s", got.err)
	}
	b.ok("restore", at, next[0], "--keyspaces", "backup-range,backup-hash", "--as",
		"backup-range=restored-range", "--as", "backup-hash=restored-hash", "-q")
	if got := b.ok("dump", "restored-range"); got != wasThere {
		t.Errorf("restored-range:\n%.400s\nwant\n%.400s", got, wasThere)
	}
	if got, want := b.ok("dump", "restored-hash"), b.ok("dump", "backup-hash", "--at",
		next[3]); got != want {
		t.Errorf("restored-hash:\n%.400s\nwant\n%.400s", got, want)
	}
	if got := b.ok("partitions", "restored-range", "-o", "tsv"); strings.Count(got, "\n") != 4 {
		t.Errorf("partitions of restored-range: %s", got)
	}
	b.ok("restore", at, full[0], "--keyspaces", "backup-hash", "--as", "backup-hash=restored-full",
		"-q")
	if got, want := b.ok("dump", "restored-full"), b.ok("dump", "backup-hash", "--at",
		full[3]); got != want {
		t.Errorf("restored-full:\n%.400s\nwant\n%.400s", got, want)
	}
	file := filepath.Join(t.TempDir(), "coord.db")
	b.local(exit.OK, "backup", "coordination", at, full[0], file)
	if info, err := os.Stat(file); err != nil || info.Size() == 0 {
		t.Errorf("the coordination store: %v", err)
	}
	if left := b.ok("keyspace", "list", "-o", "tsv"); strings.Contains(left, "restore/") {
		t.Errorf("left over: %s", left)
	}

	// A keyspace that is being filled cannot be read, nor backed up.
	b.fails(exit.NotFound, "restore/", "scan", "restore/"+full[0]+"/fruit")
	b.fails(exit.Usage, "a-z", "keyspace", "create", "restore/"+full[0]+"/fruit")

	list := b.local(exit.OK, "backup", "list", at, "-o", "tsv").out
	if strings.Count(list, "\n") != 2 || !strings.Contains(list, full[0]+"\twhole") {
		t.Errorf("list: %s", list)
	}
	shown := b.local(exit.OK, "backup", "show", at, next[0], "-o", "tsv").out
	if strings.Count(shown, "\n") != 5 {
		t.Errorf("show: %s", shown)
	}
	verified := b.local(exit.OK, "backup", "verify", at, "-q", "-o", "tsv").out
	if !strings.HasPrefix(verified, "2\t0\t") {
		t.Errorf("verify: %s", verified)
	}
	if jobs := b.ok("backup", "jobs", "-o", "tsv"); !strings.Contains(jobs, next[0]) {
		t.Errorf("jobs: %s", jobs)
	}
	if left := b.ok("consumers", "backup-hash", "-o", "tsv"); left != "" {
		t.Errorf("history is still protected: %s", left)
	}
	b.localFails(exit.Conflict, "continue it", "backup", "delete", at, full[0], "--yes")
	b.local(exit.OK, "backup", "delete", at, next[0], "--yes")
	b.local(exit.OK, "backup", "delete", at, full[0], "--yes")
	if list := b.local(exit.OK, "backup", "list", at, "-o", "tsv").out; list != "" {
		t.Errorf("after deleting: %s", list)
	}
}

// A mistake on the command line is refused in words, and nothing is written.
func TestBackupMistakes(t *testing.T) {
	b := cluster(t)
	dir := t.TempDir()
	at := "file://" + dir
	b.fails(exit.Usage, "file:///", "backup", "create", dir)
	b.fails(exit.Usage, "credentials", "backup", "create", "s3://key:secret@bucket/prefix")
	b.fails(exit.Usage, "age1", "backup", "create", at, "--recipient", "somebody")
	b.fails(exit.Usage, "full one", "backup", "create", at, "--incremental", "-q")
	b.localFails(exit.NotFound, "20260131T120000Z-1a2b3c4d", "backup", "cat", at,
		"20260131T120000Z-1a2b3c4d", "ks")
	b.fails(exit.NotFound, "backup list", "backup", "cancel", "20260131T120000Z-1a2b3c4d")
	b.localFails(exit.Usage, "ftp", "backup", "list", "ftp://host/dir")
}
