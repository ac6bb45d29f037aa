package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/follow"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/output"
	"github.com/tidemarkdb/tidemark/kv"
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
	lines := changedLines(t, b.ok("changes", "changes", "--since", before, "--until", "-0s",
		"-o", "json", "--prefix", "a", "--progress"))
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
	whole := []string{"changes", "changes", "--since", before, "--until", "-0s", "-o", "json",
		"--whole", "--whole-memory", "32MiB", "--whole-spill", "48MiB", "--temp-dir", t.TempDir()}
	if lines := changedLines(t, b.ok(whole...)); len(lines) < 4 {
		t.Errorf("with --whole come %+v", lines)
	}
	b.fails(exit.Usage, "for --whole", "changes", "changes", "--whole-spill", "1MiB")
	table := b.ok("changes", "changes", "--since", before, "--until", "-0s")
	if !strings.HasPrefix(table, "TIMESTAMP ") || strings.Count(table, "\n") != 5 ||
		!strings.Contains(table, `tab\there`) {
		t.Errorf("the table is\n%s", table)
	}
	if tsv := b.ok("changes", "changes", "--since", position, "--until", "-0s", "-o",
		"tsv", "--headers"); !strings.HasPrefix(tsv, "timestamp\tkind\tkey\tvalue\n") ||
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

// What is written while a command with --until ends is shown by the next one: it lies behind the
// end, and not behind the position that is kept.
func TestChangesUntilLeavesTheRest(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "until", "--partitions", "hash:2")
	defer b.ok("keyspace", "drop", "until", "--yes")
	before := strings.TrimSpace(b.ok("put", "until", "a", "0", "-o", "raw"))
	path := filepath.Join(t.TempDir(), "until.jsonl")
	var consumed, printed []changedLine
	position := before
	commands := func() {
		consumed = append(consumed, changedLines(t, b.ok("changes", "until", "--since", before,
			"--until", "-0s", "--consumer", "indexer", "-o", "json"))...)
		b.ok("changes", "until", "--since", before, "--until", "-0s", "--follow", path, "-o", "json")
		lines := changedLines(t, b.ok("changes", "until", "--since", position, "--until", "-0s",
			"--progress", "-o", "json"))
		printed, position = append(printed, lines...), lines[len(lines)-1].Timestamp
	}
	client, err := kv.Open(t.Context(), strings.Split(b.environment[endpointsEnv], ","))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ks := client.Keyspace("until")
	stop, written := make(chan struct{}), make(chan string)
	go func() {
		var all []string
		defer func() { written <- strings.Join(all, ", ") }()
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			value := strconv.Itoa(n)
			if _, err := ks.Put(t.Context(), []byte("a"), []byte(value)); err != nil {
				t.Error(err)
				return
			}
			all = append(all, "put a "+value)
		}
	}()
	commands()
	commands()
	close(stop)
	want := <-written
	commands() // up to the present
	followed, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for by, lines := range map[string][]changedLine{"--consumer": consumed, "--progress": printed,
		"--follow": changedLines(t, string(followed))} {
		if got := told(lines); got != want {
			t.Errorf("by %s were shown %d changes of %d", by, strings.Count(got, ","),
				strings.Count(want, ","))
		}
	}
	// An end that lies before where they are by now moves none of them.
	info, err := ks.Consumer(t.Context(), "indexer")
	if err != nil {
		t.Fatal(err)
	}
	b.want("", "changes", "until", "--until", before, "--consumer", "indexer", "-o", "json")
	if after, err := ks.Consumer(t.Context(), "indexer"); err != nil ||
		after.Position.Less(info.Position) {
		t.Errorf("the consumer was at %s, and is %+v, %v", info.Position, after, err)
	}
	b.ok("changes", "until", "--until", before, "--follow", path, "-o", "json")
	b.ok("changes", "until", "--until", "-0s", "--follow", path, "-o", "json")
	if again, err := os.ReadFile(path); err != nil || string(again) != string(followed) {
		t.Errorf("then %d bytes were followed, before %d; %v", len(again), len(followed), err)
	}
}

// Whatever is in a file has a position: a command that is stopped before the first progress can be
// run again.
func TestFollowIsStoppedBeforeTheFirstProgress(t *testing.T) {
	since := kv.Timestamp{Wall: 7}
	stopped := errors.New("stopped")
	for name, now := range map[string]bool{"since": false, "now": true} {
		for _, format := range []output.Format{output.JSON, output.TSV} {
			path := filepath.Join(t.TempDir(), name)
			for range 2 {
				file, at, ok, err := follow.Open(path, "things", "")
				if err != nil {
					t.Fatal(err)
				}
				p := &changesPrinter{out: file, lines: output.Changes{Format: format,
					Screen: output.Screen{Headers: true}},
					headed: at.Bytes > 0, now: now && !ok,
					mark: func(at kv.Timestamp) error { return file.Mark(at.String()) }}
				if !p.now {
					p.complete = since
				}
				err = p.print(func(yield func(kv.Change, error) bool) {
					if p.now && !yield(kv.Change{Kind: kv.ChangeProgress, Timestamp: since}, nil) {
						return
					}
					if yield(kv.Change{Kind: kv.ChangeDelete, Key: []byte("a"),
						Timestamp: kv.Timestamp{Wall: 8}}, nil) {
						yield(kv.Change{}, stopped)
					}
				})
				if !errors.Is(err, stopped) {
					t.Error(err)
				}
				file.Close()
			}
			data, err := os.ReadFile(path)
			if err != nil || strings.Count(string(data), "delete") != 1 ||
				strings.Contains(string(data), "timestamp\tkind") != (format == output.TSV) {
				t.Errorf("%s: the file has %q, %v", name, data, err)
			}
		}
	}
}
