package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/kv"
)

func script(lines ...string) string { return strings.Join(lines, "\n") + "\n" }

func TestTxnScript(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-hash", "--partitions", "hash:4")
	b.ok("keyspace", "create", "txn-range", "--partitions", "range", "--split-at", "m")
	for _, begin := range []string{"begin", "begin --commit-wait"} {
		b.run(script("put txn-hash gone x", "put txn-range zoo x", "delete txn-range zoo"), exit.OK,
			"txn", "-o", "raw")
		got := b.run(script(
			"# what no other client sees before the end",
			begin,
			"put txn-hash apple 'dark red'",
			"put txn-range zebra striped",
			"put txn-range ant small",
			"delete txn-hash gone",
			"get txn-hash apple",
			"scan txn-range",
			"count txn-hash",
			"count txn-range a",
			"commit",
		), exit.OK, "txn", "-o", "tsv", "--headers")
		found := regexp.MustCompile(
			`^key\tvalue\tversion\napple\tdark red\t\nkey\tvalue\nant\tsmall\nzebra\tstriped\n` +
				`count\n1\ncount\n1\nversion\n(\S+)\n$`).FindStringSubmatch(got.out)
		if found == nil || got.err != "" {
			t.Fatalf("the script printed\n%s\nand said %q", got.out, got.err)
		}
		version := found[1]
		b.want("key\tvalue\tversion\napple\tdark red\t"+version+"\n", "get", "txn-hash", "apple",
			"-o", "tsv", "--headers")
		b.want("key\tvalue\tversion\nzebra\tstriped\t"+version+"\n", "get", "txn-range", "zebra",
			"-o", "tsv", "--headers")
		b.fails(exit.NotFound, "no value", "get", "txn-hash", "gone")
		b.run(script("begin", "delete txn-hash apple", "delete txn-range zebra",
			"delete txn-range ant", "commit"), exit.OK, "txn")
		// The past of both keyspaces at once, and the present again.
		past := b.run(script("at "+version, "get txn-hash apple", "scan txn-range",
			"count txn-range", "now", "count txn-range"), exit.OK, "txn", "-o", "tsv",
			"--headers")
		want := "key\tvalue\tversion\napple\tdark red\t" + version +
			"\nkey\tvalue\nant\tsmall\nzebra\tstriped\ncount\n2\ncount\n0\n"
		if past.out != want {
			t.Errorf("the past:\n%s\nwant\n%s", past.out, want)
		}
	}
	b.run(script("put txn-hash 00ff cafe", "begin", "get txn-hash 00ff", "commit"), exit.OK,
		"txn", "--hex")
	got := b.run(script("begin", `get txn-hash \x00\xff`, "rollback"), exit.OK, "txn", "--escaped",
		"-o", "raw")
	if got.out != "\xca\xfe\n" {
		t.Errorf("binary: %q", got.out)
	}
	// Where values alone are printed, each is a line.
	got = b.run(script("put txn-hash one 1", "put txn-hash two 2", "get txn-hash one", "begin",
		"get txn-hash two", "get-for-update txn-hash one", "get-for-update txn-hash none", "commit"),
		exit.OK, "txn", "-o", "raw")
	if !regexp.MustCompile(`^\S+\n\S+\n1\n2\n1\n$`).MatchString(got.out) {
		t.Errorf("raw: %q", got.out)
	}
}

func TestTxnSavepoints(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-save", "--partitions", "hash:4")
	got := b.run(script(
		"begin",
		"put txn-save a 1",
		"savepoint one",
		"put txn-save a 2",
		"put txn-save b 2",
		"savepoint two",
		"delete txn-save a",
		"rollback-to two",
		"scan txn-save",
		"rollback-to one",
		"put txn-save c 3",
		"scan txn-save",
		"rollback-to one",
		"put txn-save d 4",
		"commit",
	), exit.OK, "txn", "-o", "tsv", "--headers")
	want := "key\tvalue\na\t2\nb\t2\nkey\tvalue\na\t1\nc\t3\nversion\n"
	if !strings.HasPrefix(got.out, want) {
		t.Errorf("printed\n%swant first\n%s", got.out, want)
	}
	b.want("a\t1\nd\t4\n", "scan", "txn-save", "-o", "tsv")
	got = b.run(script("begin", "put txn-save e 5", "savepoint one", "savepoint two",
		"rollback-to one", "rollback-to two"), exit.Usage, "txn")
	if want := `line 6: rollback-to: the transaction has no savepoint "two"`; !strings.Contains(
		got.err, want) {
		t.Errorf("said %q, want %q in it", got.err, want)
	}
	b.want("2\n", "count", "txn-save", "-o", "raw")
}

// The script of docs/transactions-reference.md does what it says.
func TestTheScriptOfTheDocument(t *testing.T) {
	document, err := os.ReadFile("../../docs/transactions-reference.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?s)tidemark txn <<'END'\n(.*?)END\n`).FindStringSubmatch(
		string(document))
	if found == nil {
		t.Fatal("the document has lost its script")
	}
	b := cluster(t)
	b.ok("keyspace", "create", "txn-document", "--partitions", "hash:4")
	b.run(strings.ReplaceAll(found[1], " fruit ", " txn-document "), exit.OK, "txn")
	b.want("apple\tsold\n", "scan", "txn-document", "-o", "tsv")
}

// An error ends a script and takes back what is open; what was committed before stays.
func TestTxnScriptThatFails(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-fail", "--partitions", "hash:4")
	first := []string{"put txn-fail first 1", "begin", "put txn-fail second 2", "commit", "begin",
		"put txn-fail third 3"}
	for _, c := range []struct {
		line, words string
		code        int
	}{
		{"get txn-fail nothing",
			`line 7: get "nothing" in keyspace "txn-fail": the key has no value; ` +
				`the transaction begun on line 5 was rolled back`, exit.NotFound},
		{"put no-such-keyspace a b",
			`line 7: put in keyspace "no-such-keyspace": there is no keyspace`, exit.NotFound},
		{"put txn-fail a", "line 7: put takes KEYSPACE KEY VALUE, got 2 arguments; the " +
			"transaction begun", exit.Usage},
		{"get txn-fail", "line 7: get takes KEYSPACE KEY, got 1 argument; the transaction begun",
			exit.Usage},
		{"get txn-fail dark red", "line 7: get takes KEYSPACE KEY, got 3 arguments; put one that " +
			"holds blanks in quotes; the transaction begun", exit.Usage},
		{"put txn-fail a 'b", "line 7: a quote (') is not closed", exit.Usage},
		{"put txn-fail '' b", "line 7: the key is empty", exit.Usage},
		{"commit now", "line 7: commit takes no arguments", exit.Usage},
		{"frobnicate", `line 7: there is no command "frobnicate"; help lists`, exit.Usage},
		{"abort",
			`line 7: there is no command "abort"; help lists those there are; ` +
				`did you mean "rollback"? The transaction begun on line 5 was rolled back`, exit.Usage},
		{"put txn-fial a b",
			`there are; did you mean "txn-fail"? The transaction begun on line 5 was rolled back` +
				"\n", exit.NotFound},
		{"begin", "line 7: begin: the transaction begun on line 5 has not ended", exit.Usage},
		{"at -1s", "line 7: at: the transaction begun on line 5 reads at one moment", exit.Usage},
		{"rollback-to x", `line 7: rollback-to: the transaction has no savepoint "x"`, exit.Usage},
		{"", "the script ends inside the transaction begun on line 5, which was rolled back",
			exit.Usage},
		{"quit", "the script ends inside the transaction begun on line 5, which was rolled back",
			exit.Usage},
	} {
		got := b.run(script(append(first, c.line)...), c.code, "txn")
		if !strings.Contains(got.err, c.words) {
			t.Errorf("%s: said\n%s\nwant in it\n%s", c.line, got.err, c.words)
		}
		b.want("first\nsecond\n", "scan", "txn-fail", "--keys-only", "-o", "raw")
	}
	for _, c := range []struct{ lines, words string }{
		{"commit", "line 1: commit: there is no transaction; begin one first"},
		{"get-for-update txn-fail a", "line 1: get-for-update: there is no transaction"},
		{"begin --wait", "line 1: begin --wait: the only option is --commit-wait"},
		{"at noon", `line 1: "noon" is not a moment`},
		{"at -1s\nput txn-fail a b", "line 2: put: the past, as of"},
		{"at -1s\nbegin", "line 2: begin: the past, as of"},
	} {
		if got := b.run(c.lines, exit.Usage, "txn"); !strings.Contains(got.err, c.words) {
			t.Errorf("%s: said %q, want %q in it", c.lines, got.err, c.words)
		}
	}
	got := b.run(script("begin", "get-for-update txn-fail new", "put txn-fail new 1", "rollback",
		"help"), exit.OK, "txn")
	if !strings.Contains(got.err, "the key has no value; it is locked") ||
		!strings.Contains(got.out, "get-for-update KEYSPACE KEY") {
		t.Errorf("%+v", got)
	}
}

// typist is a session at a terminal.
type typist struct {
	t        *testing.T
	in       *io.PipeWriter
	out, err *screen
	ended    chan int
	prompts  int
}

var promptPattern = regexp.MustCompile(`tidemark( \((transaction|past)\))?> `)

func (b shared) typist(args ...string) *typist {
	b.t.Helper()
	in, typed := io.Pipe()
	s := &typist{t: b.t, in: typed, out: newScreen(), err: newScreen(), ended: make(chan int, 1)}
	go func() {
		s.ended <- run(b.t.Context(), append([]string{"txn"}, args...), streams{
			in: in, out: s.out, err: s.err, inTerminal: true, getenv: func(name string) string {
				return b.environment[name]
			},
		})
	}()
	b.t.Cleanup(func() { typed.Close() })
	s.answer()
	return s
}

// answer waits for the next prompt.
func (s *typist) answer() {
	s.t.Helper()
	s.prompts++
	limit := time.After(time.Minute)
	for len(promptPattern.FindAllString(s.err.String(), -1)) < s.prompts {
		select {
		case <-s.err.changed:
		case code := <-s.ended:
			s.t.Fatalf("it ended with code %d: %s", code, s.err)
		case <-limit:
			s.t.Fatalf("no prompt; it said: %s", s.err)
		}
	}
}

// types types lines and returns what they made the session say, up to the last prompt, and print.
func (s *typist) types(lines ...string) (said, printed string) {
	s.t.Helper()
	errBefore, outBefore := len(s.err.String()), len(s.out.String())
	for _, line := range lines {
		if _, err := fmt.Fprintln(s.in, line); err != nil {
			s.t.Fatal(err)
		}
		s.answer()
	}
	return s.err.String()[errBefore:], s.out.String()[outBefore:]
}

func (s *typist) leaves(code int) {
	s.t.Helper()
	s.in.Close()
	if got := <-s.ended; got != code {
		s.t.Errorf("it ended with code %d, want %d: %s", got, code, s.err)
	}
}

func TestTxnPrompt(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-prompt", "--partitions", "hash:4")
	s := b.typist("--timeout", "60s", "-o", "tsv", "--headers")
	if said, _ := s.types("begin", "put txn-prompt a 1"); !regexp.MustCompile(
		`^The transaction is [0-9a-f]{32}\.\n(tidemark \(transaction\)> ){2}$`).MatchString(said) {
		t.Errorf("said %q", said)
	}
	// A mistake does not cost the transaction.
	if said, _ := s.types("put txn-prompt b", "get txn-prompt b"); !strings.Contains(said,
		"tidemark: put takes KEYSPACE KEY VALUE") ||
		!strings.Contains(said, "the key has no value") ||
		!strings.HasSuffix(said, "tidemark (transaction)> ") {
		t.Errorf("said %q", said)
	}
	if _, printed := s.types("get txn-prompt a"); printed != "key\tvalue\tversion\na\t1\t\n" {
		t.Errorf("printed %q", printed)
	}
	said, printed := s.types("commit")
	if !strings.HasPrefix(printed, "version\n") || said != "tidemark> " {
		t.Errorf("printed %q and said %q", printed, said)
	}
	if said, _ := s.types("at " +
		strings.TrimSpace(strings.TrimPrefix(printed, "version\n"))); said != "tidemark (past)> " {
		t.Errorf("said %q", said)
	}
	for _, reads := range []string{"get txn-prompt a", "get-for-update txn-prompt a",
		"count txn-prompt"} {
		said, printed := s.types("now", "begin", reads, "commit")
		if strings.Contains(printed, "\nversion\n") ||
			!strings.HasSuffix(said, "There was nothing to write.\ntidemark> ") {
			t.Errorf("%s: printed %q and said %q", reads, printed, said)
		}
	}
	s.types("begin", "put txn-prompt c 3")
	s.leaves(exit.OK)
	if !strings.HasSuffix(s.err.String(), "The transaction was rolled back.\n") {
		t.Errorf("said %q", s.err)
	}
	b.want("a\t1\n", "scan", "txn-prompt", "-o", "tsv")
	for _, word := range []string{"quit", "exit"} {
		s := b.typist("--timeout", "60s")
		fmt.Fprintln(s.in, word)
		s.leaves(exit.OK)
		if strings.Contains(s.err.String(), "there is no command") {
			t.Errorf("%s: said %q", word, s.err)
		}
	}
	if got := b.run(script("begin", "get txn-prompt a", "commit"), exit.OK, "txn", "-o",
		"tsv", "--headers"); got.err != "" || strings.Count(got.out, "\n") != 2 {
		t.Errorf("a script that only reads: %+v", got)
	}
}

func TestTxnConflict(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-one", "--partitions", "hash:4")
	b.ok("keyspace", "create", "txn-two", "--partitions", "hash:4")
	b.ok("put", "txn-one", "n", "1")
	a, other := b.typist("--timeout", "60s", "-o", "raw"), b.typist("--timeout", "60s", "-o", "raw")
	if _, printed := a.types("begin", "get txn-one n"); printed != "1\n" {
		t.Fatalf("printed %q", printed)
	}
	if said, _ := other.types("begin", "get txn-one n", "put txn-one n 2", "put txn-two m 2",
		"commit"); !strings.HasSuffix(said, "tidemark> ") {
		t.Fatalf("said %q", said)
	}
	said, printed := a.types("put txn-one n 3", "put txn-two m 3", "commit")
	for _, words := range []string{
		`commit "n" in keyspace "txn-one": the key was changed after the transaction had read it`,
		"run the transaction again",
		"nothing of the transaction begun on line 1 was written"} {
		if !strings.Contains(said, words) {
			t.Errorf("said %q, want %q in it", said, words)
		}
	}
	if printed != "" || !strings.HasSuffix(said, "tidemark> ") {
		t.Errorf("printed %q, said %q", printed, said)
	}
	b.want("2", "get", "txn-one", "n", "-o", "raw")
	b.want("2", "get", "txn-two", "m", "-o", "raw")

	// A lock holds others up; one that waits in vain learns which transaction has it.
	if _, printed := a.types("begin", "get-for-update txn-one n"); printed != "2\n" {
		t.Fatalf("printed %q", printed)
	}
	got := command(t, script("begin", "put txn-two m 4", "put txn-one n 4", "commit"),
		b.environment, "txn", "--timeout", "3s")
	if got.code != exit.Conflict ||
		!regexp.MustCompile(
			`tidemark: line 4: commit "n" in keyspace "txn-one": `+
				`.*key "n" is locked by transaction [0-9a-f]{16,}.*`+
				`nothing of the transaction begun on line 1 was written`).MatchString(got.err) {
		t.Errorf("%+v", got)
	}
	b.want("2", "get", "txn-two", "m", "-o", "raw")
	a.types("put txn-one n 5", "commit")
	b.want("5", "get", "txn-one", "n", "-o", "raw")
	a.leaves(exit.OK)
	other.leaves(exit.OK)
}

// later waits until what begins is younger than what has begun, though the sessions' estimates of
// the time, and the nodes' clocks, differ.
func (b shared) later(keyspace string) {
	b.t.Helper()
	now := func() time.Time {
		at, err := kv.ParseTimestamp(strings.TrimSpace(b.ok("put", keyspace, "clock", "", "-o", "raw")))
		if err != nil {
			b.t.Fatal(err)
		}
		return at.Time()
	}
	for first := now(); now().Sub(first) < 500*time.Millisecond; {
	}
}

// The older of two sessions takes a lock from the younger, which says so; begun again it is as old
// as before.
func TestTxnPromptWound(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-wound", "--partitions", "hash:4")
	var sessions []*typist
	for range 3 {
		s := b.typist("--timeout", "60s", "-o", "raw")
		s.types("begin")
		sessions = append(sessions, s)
		b.later("txn-wound")
	}
	old, middle, young := sessions[0], sessions[1], sessions[2]
	middle.types("get-for-update txn-wound a")
	young.types("get-for-update txn-wound b", "put txn-wound b young")
	// Neither of them ends by itself, so what gets a lock here has taken it away.
	if said, _ := old.types("get-for-update txn-wound a"); !strings.Contains(said, "it is locked") {
		t.Fatalf("said %q", said)
	}
	said, _ := middle.types("put txn-wound a middle", "commit")
	if !regexp.MustCompile(
		`the transaction was aborted, ` +
			`because an older one \([0-9a-f]{32}\) wanted the key, ` +
			`which it had locked; run the transaction again`).MatchString(said) {
		t.Errorf("said %q", said)
	}
	if said, _ := middle.types("begin", "get-for-update txn-wound b"); !strings.Contains(said,
		"it is locked") {
		t.Fatalf("said %q", said)
	}
	if said, _ := young.types("commit"); !strings.Contains(said,
		"wanted the key, which it had locked") {
		t.Errorf("said %q", said)
	}
	middle.types("put txn-wound b middle", "commit")
	old.types("put txn-wound a old", "commit")
	for _, s := range sessions {
		s.leaves(exit.OK)
	}
	b.want("a\told\nb\tmiddle\nclock\t\n", "scan", "txn-wound", "-o", "tsv")
}

// Ctrl-C ends a session that waits for a line, and rolls its transaction back.
func TestTxnInterrupted(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "txn-stop", "--partitions", "hash:4")
	for _, terminal := range []bool{true, false} {
		ctx, interrupt := context.WithCancel(t.Context())
		in, typed := io.Pipe()
		s := &server{t: t, out: newScreen(), err: newScreen(), stop: interrupt,
			ended: make(chan int, 1)}
		go func() {
			s.ended <- run(ctx, []string{"txn", "--timeout", "60s"}, streams{
				in: in, out: s.out, err: s.err, inTerminal: terminal, getenv: func(name string) string {
					return b.environment[name]
				},
			})
		}()
		fmt.Fprint(typed, script("begin", "put txn-stop a 1", "count txn-stop"))
		s.says(`COUNT\n +1`)
		interrupt()
		if code := <-s.ended; code != exit.Interrupted ||
			!strings.Contains(s.err.String(), "rolled back") {
			t.Errorf("code %d, said %q", code, s.err)
		}
		typed.Close()
		b.want("0\n", "count", "txn-stop", "-o", "raw")
	}
}
