package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// keyboard is a session at a terminal that gives keys.
func (b shared) keyboard(home string, args ...string) *typist {
	b.t.Helper()
	in, typed := io.Pipe()
	s := &typist{t: b.t, in: typed, out: newScreen(), err: newScreen(), ended: make(chan int, 1)}
	go func() {
		s.ended <- run(b.t.Context(), append([]string{"txn"}, args...), streams{
			in: in, out: s.out, err: s.err, inTerminal: true,
			keys: &screenKeys{
				ReadWriter: struct {
					io.Reader
					io.Writer
				}{in, s.err},
				raw:  func() (func(), error) { return func() {}, nil },
				size: func() (int, int) { return 200, 40 },
			},
			getenv: func(name string) string {
				if name == "HOME" {
					return home
				}
				return b.environment[name]
			},
		})
	}()
	b.t.Cleanup(func() { typed.Close() })
	return s
}

// press presses keys and waits until the session has printed something.
func (s *typist) press(keys, want string) {
	s.t.Helper()
	before := len(s.out.String()) + len(s.err.String())
	if _, err := io.WriteString(s.in, keys); err != nil {
		s.t.Fatal(err)
	}
	limit := time.After(time.Minute)
	for {
		if all := s.err.String() + s.out.String(); len(all) > before &&
			strings.Contains(s.out.String()+s.err.String(), want) {
			return
		}
		select {
		case <-s.err.changed:
		case <-s.out.changed:
		case code := <-s.ended:
			s.t.Fatalf("it ended with code %d before %q: %s%s", code, want, s.out, s.err)
		case <-limit:
			s.t.Fatalf("after %q there is no %q: %q %q", keys, want, s.out, s.err)
		}
	}
}

// At a terminal lines can be edited, repeated and completed, and the next session knows them,
// without values.
func TestTxnPromptEdits(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "editor-first", "--partitions", "hash:1")
	b.ok("keyspace", "create", "editor-other", "--partitions", "hash:1")
	home := t.TempDir()
	s := b.keyboard(home, "--timeout", "60s", "-o", "tsv", "--headers")
	s.press("put editor-first k secret-1\r", "version")
	// Tab completes the command and the keyspace.
	s.press("pu\teditor-f\tx 'two words'\r", "\n")
	s.press("get editor-f\tx\x1b[D\x1b[C\r", "x\ttwo words") // and the arrows move
	s.press("get editor-\t", "editor-first  editor-other")
	s.press("\x15\x1b[A\r", "x\ttwo words") // the last line again
	s.press(" put editor-first hidden v\r", "\n")
	s.press("gett editor-first x\r", `did you mean "get"?`)
	s.press("get editor-frist x\r", `did you mean "editor-first"?`)
	s.press("begin\r", "The transaction is")
	s.press("\x03", "The transaction was rolled back.")
	s.in.Close()
	if code := <-s.ended; code != exit.Interrupted {
		t.Errorf("Ctrl-C: exit code %d: %s", code, s.err)
	}
	path := filepath.Join(home, ".local", "state", "tidemark", "history")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "put editor-first k\nput editor-first x\nget editor-first x\n" +
		"gett editor-first x\nget editor-frist x\nbegin\n"
	if string(text) != want {
		t.Errorf("the history is\n%swant\n%s", text, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	next := b.keyboard(home, "--timeout", "60s", "-o", "tsv", "--headers")
	next.press("\x1b[A\r", "The transaction is") // the last line of the former session
	next.press("\x04", "rolled back")
	next.leaves(exit.OK)
	none := b.keyboard(home, "--timeout", "60s", "--history", "off")
	none.press("\x1b[Aget editor-first k\r", "secret-1")
	none.leaves(exit.OK)
	if after, err := os.ReadFile(path); err != nil ||
		string(after) != want+"begin\n" && string(after) != want {
		t.Errorf("--history off: %q, %v", after, err)
	}
}

// What is meant is found if it is one, and close.
func TestDidYouMean(t *testing.T) {
	names := []string{"get", "put", "scan", "status", "start", "keyspace", "partitions"}
	for word, want := range map[string]string{
		"gte": "get", "putt": "put", "sacn": "scan", "stats": "status", "statu": "status",
		"key": "keyspace", "partitons": "partitions",
		"x": "", "frobnicate": "", "pet": "", "SCAN": "scan",
	} {
		if got := closest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
