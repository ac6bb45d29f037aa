package main

import (
	"bytes"
	"net"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// The names that hints give are those of commands that there are.
func TestHintsNameCommands(t *testing.T) {
	root := (&app{}).root()
	for path, words := range foreignCommands {
		for word, hint := range words {
			for i, quoted := range strings.Split(hint, `"`) {
				if i%2 == 0 {
					continue
				}
				full, whole := strings.CutPrefix(quoted, "tidemark ")
				if !whole {
					full = strings.TrimSpace(strings.TrimPrefix(path, "tidemark") + " " + quoted)
				}
				name, _, _ := strings.Cut(full, ",")
				cmd, rest, err := root.Find(strings.Fields(name))
				if err != nil || len(rest) > 0 || cmd == root {
					t.Errorf("%s %s: %q is no command", path, word, name)
				}
			}
			parent, _, err := root.Find(strings.Fields(path)[1:])
			if err != nil {
				t.Fatal(err)
			}
			for _, cmd := range parent.Commands() {
				if cmd.Name() == word || cmd.HasAlias(word) {
					t.Errorf("%s %s is a command, and hides its hint", path, word)
				}
			}
		}
	}
}

// At 80 columns no line of help is longer, but for examples, and none is lost.
func TestHelpFitsNarrowTerminals(t *testing.T) {
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		args := append(strings.Fields(cmd.CommandPath())[1:], "--help")
		var narrow, errs bytes.Buffer
		run(t.Context(), args, streams{out: &narrow, err: &errs, outTerminal: true, width: 80,
			getenv: func(string) string { return "" }})
		for line := range strings.Lines(narrow.String()) {
			if w := text.StringWidth(strings.TrimSuffix(line, "\n")); w > 80 &&
				!strings.HasPrefix(line, "  tidemark ") {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), w, line)
			}
		}
		words := func(s string) string { return strings.Join(strings.Fields(s), "") }
		if wide := command(t, "", nil, args...).out; words(wide) != words(narrow.String()) {
			t.Errorf("%s: the narrow help says\n%s\nand the wide one\n%s", cmd.CommandPath(),
				narrow.String(), wide)
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{streams: streams{getenv: func(string) string { return "" }}}).root())
}

// A value that is - is read from standard input, as it is and up to the limit; a hyphen is written
// in another way.
func TestPutReadsStandardInput(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "stdin", "--partitions", "hash:2")
	b.run("two\nlines\n", exit.OK, "put", "stdin", "a", "-")
	b.want("two\nlines\n", "get", "stdin", "a", "-o", "raw")
	b.ok("put", "stdin", "hyphen", `\x2d`, "--escaped")
	b.want("-", "get", "stdin", "hyphen", "-o", "raw")
	b.run("new", exit.OK, "cas", "stdin", "b", "-", "--expect-absent")
	b.want("new", "get", "stdin", "b", "-o", "raw")
	b.run("from stdin", exit.OK, "coord", "put", "stdin/a", "-")
	b.want("from stdin", "coord", "get", "stdin/a", "-o", "raw")
	got := b.run(strings.Repeat("v", keys.MaxValueSize+1), exit.Usage, "put", "stdin", "large", "-")
	if !strings.Contains(got.err, "the value on standard input: it is longer than the limit") {
		t.Error(got.err)
	}
	b.fails(exit.NotFound, "has no value", "get", "stdin", "large")
	// The largest value comes whole through a pipe, also as a table.
	largest := strings.Repeat("v", keys.MaxValueSize)
	b.run(largest, exit.OK, "put", "stdin", "largest", "-")
	if out := b.ok("get", "stdin", "largest"); strings.Count(out, "v") != len(largest) {
		t.Errorf("%d bytes", len(out))
	}
	if out := b.walk(80, exit.OK, "", "get", "stdin", "largest"); len(out) > 500 ||
		!strings.Contains(out, "(… marks what was cut; --output raw has all)") {
		t.Errorf("on a terminal: %.500s", out)
	}
}

// Colours are for terminals, unless a flag says otherwise.
func TestColors(t *testing.T) {
	b := cluster(t)
	for _, c := range []struct {
		terminal    bool
		environment map[string]string
		flag        string
		colored     bool
	}{
		{terminal: false},
		{terminal: true, colored: true},
		{terminal: true, environment: map[string]string{"NO_COLOR": "1"}},
		{terminal: true, environment: map[string]string{"TERM": "dumb"}},
		{terminal: true, flag: "never"},
		{terminal: true, environment: map[string]string{"NO_COLOR": "1"}, flag: "always",
			colored: true},
		{terminal: false, flag: "always", colored: true},
	} {
		for _, args := range [][]string{{"nodes"}, {"get", "no-keyspace", "a"}} {
			if c.flag != "" {
				args = append(args, "--color", c.flag)
			}
			s := streams{outTerminal: c.terminal, errTerminal: c.terminal,
				getenv: func(name string) string {
					if value := b.environment[name]; value != "" {
						return value
					}
					return c.environment[name]
				}}
			if c.terminal {
				s.width = 100
			}
			var out, errs bytes.Buffer
			s.out, s.err, s.in = &out, &errs, strings.NewReader("")
			run(t.Context(), args, s)
			if all := out.String() + errs.String(); strings.Contains(all, "\x1b[") != c.colored {
				t.Errorf("%q, %+v: %q", args, c, all)
			}
		}
	}
}

// The shell offers what a cluster knows: keyspaces, partitions, nodes and members, where a command
// takes them.
func TestCompletion(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "completed", "--partitions", "hash:1")
	offered := func(args ...string) []string {
		got := b.complete(args...)
		if got.code != exit.OK {
			t.Errorf("%q: %+v", args, got)
		}
		lines := strings.Split(strings.TrimSpace(got.out), "\n")
		return lines[:len(lines)-1] // the last one is for the shell
	}
	has := func(lines []string, begin, end string) bool {
		for _, line := range lines {
			if strings.HasPrefix(line, begin) && strings.HasSuffix(line, end) {
				return true
			}
		}
		return false
	}
	partition := strings.SplitN(b.ok("partitions", "completed", "-o", "tsv"), "\t", 2)[0]
	for _, args := range []string{"move ", "transfer ", "merge ", "why ", "events --partition "} {
		if lines := offered(append(strings.Fields(args), "")...); !has(lines, partition+"\t",
			"of completed") {
			t.Errorf("%s: %q", args, lines)
		}
	}
	for _, args := range []string{"node drain", "node undo", "node decommission", "move 1 --to",
		"move 1 --from", "transfer 1 --to", "events --node", "why"} {
		begin := "2\t"
		if args == "why" {
			begin = "n2\t"
		}
		if lines := offered(append(strings.Fields(args), "")...); !has(lines, begin, "") {
			t.Errorf("%s: %q", args, lines)
		}
	}
	for _, args := range []string{"get", "keyspace drop", "partitions", "why", "split", "dump",
		"why --keyspace", "consumers", "consumers delete"} {
		if lines := offered(append(strings.Fields(args), "")...); !has(lines, "completed", "") {
			t.Errorf("%s: %q", args, lines)
		}
	}
	for _, args := range []string{"core remove", "core promote", "core replace"} {
		if lines := offered(append(strings.Fields(args), "")...); !has(lines,
			oneCluster.cluster.Endpoints()[0]+"\t", "") {
			t.Errorf("%s: %q", args, lines)
		}
	}
	if lines := offered("get", "completed", ""); len(lines) != 0 {
		t.Errorf("a second argument: %q", lines)
	}
}

// Where no server answers, nothing is offered, soon and without an error.
func TestCompletionWithoutACluster(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // it takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for _, address := range []string{"127.0.0.1:1", silent.Addr().String(), "nonsense"} {
		b := shared{t, map[string]string{endpointsEnv: address}}
		got := b.complete("node", "drain", "") // it ends, as the test does
		if got.code != exit.OK || got.out != ":4\n" {
			t.Errorf("%s: %+v", address, got)
		}
	}
}

// complete asks what the last word may be, as the scripts of the shells do.
func (b shared) complete(args ...string) result {
	b.t.Helper()
	return command(b.t, "", b.environment, append([]string{"__complete"}, args...)...)
}
