package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/hlc"
)

// A schedule makes every moment restorable: what a restore and `backup cat` have of a moment is what
// a read at the moment finds.
func TestBackupSchedule(t *testing.T) {
	b := cluster(t)
	at := "file://" + t.TempDir()
	b.ok("keyspace", "create", "log-range", "--partitions", "range", "--split-at", "k3")
	b.ok("keyspace", "create", "log-hash", "--partitions", "hash:8")
	both := []string{"log-range", "log-hash"}
	for _, ks := range both {
		for i := range 9 {
			b.ok("put", ks, fmt.Sprintf("k%d", i), "first")
		}
	}
	// From now on a dump says "never" of the values that were written before.
	b.ok("keyspace", "alter", "log-hash", "--ttl", "720h")
	b.ok("backup", "schedule", "create", at, "--name", "walked", "--keyspaces", "log-*", "--full",
		"1h", "--incremental", "30m", "--log", "1s", "--keep", "1d")
	now := func() (s struct {
		State    string
		LastID   string `json:"last_id"`
		LastFull string `json:"last_full"`
		LogHas   string `json:"log_has"`
		LogID    string `json:"log_id"`
	}) {
		for _, line := range strings.Split(b.ok("backup", "schedule", "list", "-o", "json"), "\n") {
			if strings.Contains(line, `"walked"`) {
				if err := json.Unmarshal([]byte(line), &s); err != nil {
					t.Fatal(err)
				}
			}
		}
		return s
	}
	await := func(what string, holds func() bool) {
		t.Helper()
		for began := time.Now(); !holds(); time.Sleep(50 * time.Millisecond) { // asked again
			if time.Since(began) > time.Minute {
				t.Fatalf("waited in vain: %s: %+v", what, now())
			}
		}
	}
	await("the first backup", func() bool { return now().LastID != "" })

	var moments []string
	write := func(args ...string) {
		t.Helper()
		version := strings.TrimSpace(b.ok(append(args, "-o", "tsv")...))
		if args[0] == "put" {
			moments = append(moments, version)
		}
	}
	for _, ks := range both {
		write("put", ks, "k1", "second")
		write("put", ks, "k1", "third")
		write("put", ks, "new", "added", "--ttl", "1h")
		write("delete", ks, "k2")
		write("put", ks, "k2", "again")
	}
	b.ok("split", "log-range", "--at", "k2", "--wait")
	b.ok("keyspace", "create", "log-new", "--partitions", "hash:2")
	write("put", "log-new", "a", "1")
	b.ok("coord", "put", "backup-schedule", "written while the log went on")
	write("put", "log-range", "k1", "last")
	last, err := hlc.Parse(moments[len(moments)-1])
	if err != nil {
		t.Fatal(err)
	}
	// A round fixes the state of the coordination store before it chooses its moment. So the round that
	// has the last write may lack what was put into the coordination store shortly before; the next
	// round has it.
	for _, what := range []string{"the log to have the last write", "the round after"} {
		await(what, func() bool {
			reached, err := hlc.Parse(now().LogHas)
			if err != nil || !last.Less(reached) {
				return false
			}
			last = reached
			return true
		})
	}
	for i, moment := range moments {
		for _, ks := range both {
			got := b.local(exit.OK, "backup", "cat", at, ks, "--at", moment).out
			want := b.ok("dump", ks, "--at", moment)
			if strings.Join(sortedLines(got), "\n") != strings.Join(sortedLines(want), "\n") {
				t.Errorf("%s at moment %d:\n%s\nwant\n%s", ks, i, got, want)
			}
		}
	}
	b.ok("restore", at, "--at", moments[1], "--as", "log-range=then-range", "--as",
		"log-hash=then-hash", "--keyspaces", "log-range,log-hash", "-q")
	for _, ks := range []string{"range", "hash"} {
		if got, want := b.ok("dump", "then-"+ks), b.ok("dump", "log-"+ks, "--at", moments[1]); got !=
			want {
			t.Errorf("then-%s:\n%s\nwant\n%s", ks, got, want)
		}
	}
	b.ok("restore", at, "--at", "latest", "--keyspaces", "log-new", "--as", "log-new=then-new", "-q")
	if got := b.ok("get", "then-new", "a", "-o", "tsv"); !strings.Contains(got, "1") {
		t.Errorf("then-new: %s", got)
	}
	// The coordination store as it was.
	file := filepath.Join(t.TempDir(), "coord.db")
	b.local(exit.OK, "backup", "coordination", at, "--at", "latest", file)
	if content, err := os.ReadFile(file); err != nil || !bytes.Contains(content,
		[]byte("written while the log went on")) {
		t.Errorf("the coordination store of %d bytes lacks what was written: %v", len(content), err)
	}
	drill := b.local(exit.OK, "backup", "drill", at, "--at", moments[2], "-q", "-o", "tsv").out
	if strings.Count(drill, "\t0\t0\t") < 2 {
		t.Errorf("drill: %s", drill)
	}
	b.fails(exit.Usage, "every moment from", "restore", at, "--at", "2020-01-01T00:00:00Z", "-q")
	b.localFails(exit.Usage, "--at TIME", "backup", "cat", at, "log-range")

	// An incremental backup continues, and the moments before it stay.
	first := now().LastID
	b.ok("backup", "schedule", "run", "walked")
	await("an incremental backup", func() bool { return now().LastID != first })
	list := b.local(exit.OK, "backup", "list", at, "-o", "tsv").out
	if strings.Count(list, "\tincremental\t") != 1 || strings.Count(list, "\tlog\t") != 1 ||
		strings.Contains(list, "broken") {
		t.Errorf("list: %s", list)
	}
	got := b.local(exit.OK, "backup", "cat", at, "log-range", "--at", moments[0]).out
	if want := b.ok("dump", "log-range", "--at", moments[0]); got != want {
		t.Errorf("after the incremental backup:\n%s\nwant\n%s", got, want)
	}
	if found := b.local(exit.OK, "backup", "verify", at, "-q", "-o", "tsv"); !strings.HasPrefix(
		found.out, "2\t0\t") || !strings.Contains(found.err, "every moment from") {
		t.Errorf("verify: %+v", found)
	}
	if held := b.ok("consumers", "log-hash", "-o", "tsv"); strings.Count(held, "backup/") != 2 {
		t.Errorf("protected: %s", held)
	}
	log := now().LogID
	b.ok("backup", "schedule", "delete", "walked")
	if held := b.ok("consumers", "log-hash", "-o", "tsv"); held != "" {
		t.Errorf("history is still protected: %s", held)
	}
	b.fails(exit.NotFound, "no schedule", "backup", "schedule", "run", "walked")
	b.local(exit.OK, "backup", "delete", at, log, "--yes")
	if list := b.local(exit.OK, "backup", "list", at, "-o", "tsv").out; strings.Contains(list,
		"\tlog\t") {
		t.Errorf("after deleting the log: %s", list)
	}
}
