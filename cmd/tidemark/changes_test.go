package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// changedLine is a line of changes -o json.
type changedLine struct{ Timestamp, Kind, Key, Value string }

func changedLines(t *testing.T, text string) (lines []changedLine) {
	t.Helper()
	for line := range strings.Lines(text) {
		var c changedLine
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		lines = append(lines, c)
	}
	return lines
}

// told is what lines tell, without timestamps and progress.
func told(lines []changedLine) string {
	var all []string
	for _, c := range lines {
		if c.Kind != "progress" {
			all = append(all, c.Kind+" "+c.Key+" "+c.Value)
		}
	}
	return strings.Join(all, ", ")
}

// Changes shows each version, goes on at a progress, and is of the keys that were asked for.
func TestChangesVerb(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "changes", "--partitions", "range", "--split-at", "m")
	defer b.ok("keyspace", "drop", "changes", "--yes")
	before := strings.TrimSpace(b.ok("put", "changes", "a", "1", "-o", "raw"))
	b.ok("put", "changes", "a", "2")
	b.ok("put", "changes", "z", "tab\there")
	last := strings.TrimSpace(b.ok("delete", "changes", "a", "-o", "raw"))
	if last == "" {
		last = "-0s"
	}
	lines := changedLines(t, b.ok("changes", "changes", "--since", before, "--until", "-0s", "-o", "json",
		"--prefix", "a", "--progress"))
	if got := told(lines); got != "put a 2, delete a " || lines[len(lines)-1].Kind != "progress" {
		t.Fatalf("told %s: %+v", got, lines)
	}
	position := lines[len(lines)-1].Timestamp
	b.ok("put", "changes", "b", "3")
	lines = changedLines(t, b.ok("changes", "changes", "--since", position, "--until", "-0s", "-o",
		"json"))
	if got := told(lines); got != "put b 3" {
		t.Fatalf("after %s it told %s", position, got)
	}
	table := b.ok("changes", "changes", "--since", before, "--until", "-0s")
	if !strings.HasPrefix(table, "TIMESTAMP ") || strings.Count(table, "\n") != 5 ||
		!strings.Contains(table, `tab\there`) {
		t.Errorf("the table is\n%s", table)
	}
	if tsv := b.ok("changes", "changes", "--since", position, "--until", "-0s", "-o",
		"tsv"); !strings.HasPrefix(tsv, "timestamp\tkind\tkey\tvalue\n") ||
		!strings.HasSuffix(tsv, "\tput\tb\t3\n") {
		t.Errorf("printed\n%s", tsv)
	}
	b.fails(exit.NotFound, "no-such", "changes", "no-such", "--until", "-0s")
	b.fails(exit.Usage, "moment", "changes", "changes", "--since", "soon")
}

// Changes that are followed into a file are in it once, however often the command is run.
func TestChangesFollow(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "follow", "--partitions", "hash:3")
	defer b.ok("keyspace", "drop", "follow", "--yes")
	before := strings.TrimSpace(b.ok("put", "follow", "a", "0", "-o", "raw"))
	path := filepath.Join(t.TempDir(), "follow.jsonl")
	follow := func() { // the same command each time
		b.ok("changes", "follow", "--since", before, "--until", "-0s", "--follow", path, "-o", "json")
	}
	b.ok("put", "follow", "b", "1")
	follow()
	file, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteString("half a li"); err != nil { // as a crash leaves it
		t.Fatal(err)
	}
	file.Close()
	b.ok("put", "follow", "c", "2")
	follow()
	follow()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := told(changedLines(t, string(data))); got != "put b 1, put c 2" {
		t.Errorf("the file tells %s", got)
	}
	b.fails(exit.Usage, "another file", "changes", "follow", "--follow", path, "--prefix", "a")
}

// Changes of a consumer go on where the last command of that name was.
func TestChangesConsumer(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "consumed", "--partitions", "hash:2")
	defer b.ok("keyspace", "drop", "consumed", "--yes")
	before := strings.TrimSpace(b.ok("put", "consumed", "a", "0", "-o", "raw"))
	shown := func() string {
		return told(changedLines(t, b.ok("changes", "consumed", "--since", before, "--until", "-0s",
			"--consumer", "indexer", "-o", "json")))
	}
	b.ok("put", "consumed", "b", "1")
	if got := shown(); got != "put b 1" {
		t.Errorf("a new consumer was shown %s", got)
	}
	b.ok("put", "consumed", "c", "2")
	if got := shown(); got != "put c 2" {
		t.Errorf("then it was shown %s", got)
	}
	b.fails(exit.Usage, "follow", "changes", "consumed", "--consumer", "indexer", "--follow", "f")
}
