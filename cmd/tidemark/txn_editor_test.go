package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		if all := s.err.String() + s.out.String(); len(all) > before && strings.Contains(s.out.String()+s.err.String(), want) {
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
	s := b.keyboard(home, "--timeout", "60s", "-o", "tsv")
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
	if code := <-s.ended; code != exitInterrupted {
		t.Errorf("Ctrl-C: exit code %d: %s", code, s.err)
	}
	path := filepath.Join(home, ".local", "state", "tidemark", "history")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "put editor-first k\nput editor-first x\nget editor-first x\ngett editor-first x\nget editor-frist x\nbegin\n"
	if string(text) != want {
		t.Errorf("the history is\n%swant\n%s", text, want)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	next := b.keyboard(home, "--timeout", "60s", "-o", "tsv")
	next.press("\x1b[A\r", "The transaction is") // the last line of the former session
	next.press("\x04", "rolled back")
	next.leaves(exitOK)
	none := b.keyboard(home, "--timeout", "60s", "--history", "off")
	none.press("\x1b[Aget editor-first k\r", "secret-1")
	none.leaves(exitOK)
	if after, err := os.ReadFile(path); err != nil || string(after) != want+"begin\n" && string(after) != want {
		t.Errorf("--history off: %q, %v", after, err)
	}
}

// A long history is cut, and a line of put is kept without what was stored.
func TestTxnHistory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	h := openHistory(path)
	for i := range 2*historyLines + 1 {
		h.Add(fmt.Sprintf("get fruit %d", i))
	}
	h = openHistory(path)
	if h.Len() != historyLines || h.At(0) != fmt.Sprintf("get fruit %d", 2*historyLines) {
		t.Errorf("%d lines, the newest is %q", h.Len(), h.At(0))
	}
	if text, err := os.ReadFile(path); err != nil || strings.Count(string(text), "\n") != historyLines {
		t.Errorf("the file has %d lines: %v", strings.Count(string(text), "\n"), err)
	}
	for line, want := range map[string]string{
		"put fruit apple red":             "put fruit apple",
		"put 'my fruit' \"it's\" 'a b'":   `put 'my fruit' "it's"`,
		"  put fruit apple 'not closed":   "put",
		"get fruit apple":                 "get fruit apple",
		"put fruit apple red and more of": "put fruit apple",
	} {
		if got := withoutValue(line); got != want {
			t.Errorf("%s is kept as %s, want %s", line, got, want)
		}
	}
	for env, want := range map[string]string{"": "/h/.local/state/tidemark/history", "off": "", "/x": "/x"} {
		if got := historyFile("", func(name string) string { return map[string]string{"HOME": "/h", historyEnv: env}[name] }); got != want {
			t.Errorf("%q: %q, want %q", env, got, want)
		}
	}
}

// What is meant is found if it is one, and close.
func TestDidYouMean(t *testing.T) {
	names := []string{"get", "put", "scan", "status", "start", "keyspace", "partitions"}
	for word, want := range map[string]string{
		"gte": "get", "putt": "put", "sacn": "scan", "stats": "status", "statu": "status", "key": "keyspace", "partitons": "partitions",
		"x": "", "frobnicate": "", "pet": "", "SCAN": "scan",
	} {
		if got := closest(word, names); got != want {
			t.Errorf("%s: %q, want %q", word, got, want)
		}
	}
}
