package kvtest_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// TestScripts runs the scenarios in testdata/scenarios, each in virtual time. A file opens with the
// sentence that it proves, and has one script:
//
//	# A leader that was paused serves nothing stale.
//	run mode=(stall, break)
//	cluster cores=3 separate
//	keyspace things range
//	put things k old
//	name old leader
//	cut old others $mode
//	get things k
//	----
//	k = old
//
// With mode=(stall, break) it runs twice, with $mode being one and then the other; both times it
// has to print the same. A command that goes as it should prints nothing, but for those that ask
// something. commands (script_commands_test.go) has the list. Indented lines belong to the command
// before them.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scenarios", func(t *testing.T, path string) {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(string(source), "\n"); !strings.HasPrefix(first, "# ") {
			t.Errorf("%s does not open with the sentence that it proves", filepath.Base(path))
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			printed := ""
			for i, v := range variants(d.CmdArgs) {
				got := ""
				t.Run(v.name, func(t *testing.T) {
					bubble(t, func(t *testing.T) { got = play(t, v.replace(d.Input)) })
				})
				if i > 0 && got != printed {
					t.Errorf("%s prints\n%s\nand the first one printed\n%s", v.name, got, printed)
				}
				if i == 0 {
					printed = got
				}
			}
			return printed
		})
	})
}

// variant is one value for each variable of a script.
type variant struct {
	name     string
	replacer []string
}

func (v variant) replace(script string) string {
	return strings.NewReplacer(v.replacer...).Replace(script)
}

// variants are all combinations of the values of the variables.
func variants(args []datadriven.CmdArg) []variant {
	all := []variant{{}}
	for _, arg := range args {
		var longer []variant
		for _, before := range all {
			for _, value := range arg.Vals {
				longer = append(longer, variant{
					name: strings.Trim(before.name+","+arg.Key+"="+value, ","),
					replacer: append(before.replacer[:len(before.replacer):len(before.replacer)],
						"$"+arg.Key, value),
				})
			}
		}
		all = longer
	}
	return all
}

// scene is a script that is being played.
type scene struct {
	t *testing.T
	c *kvtest.Cluster
	// clients by name, servers by what the script calls them, terms likewise.
	clients map[string]*guest
	servers map[string]int
	terms   map[leadership]uint64
	mounts  map[string]func()
	// nodes are the ids that servers had when the script noted them; coreAlone are the servers that
	// are started without the role of a node.
	nodes     map[int]uint64
	coreAlone map[int]bool
	printed   strings.Builder
}

// guest is a client and its host.
type guest struct {
	*kv.Client
	host string
}

func play(t *testing.T, script string) string {
	s := &scene{t: t, clients: make(map[string]*guest), servers: make(map[string]int),
		mounts: make(map[string]func()), nodes: make(map[int]uint64),
		coreAlone: make(map[int]bool)}
	s.run(strings.Split(script, "\n"))
	return s.printed.String()
}

// run runs lines; indented ones belong to the line before them.
func (s *scene) run(lines []string) {
	for i := 0; i < len(lines); {
		end := i + 1
		for end < len(lines) && strings.HasPrefix(lines[end], " ") {
			end++
		}
		var inner []string
		for _, line := range lines[i+1 : end] {
			inner = append(inner, strings.TrimSpace(line))
		}
		s.command(lines[i], inner)
		i = end
	}
}

func (s *scene) command(line string, inner []string) {
	line, _, _ = strings.Cut(line, "#")
	fields := strings.Fields(line)
	if len(fields) == 0 {
		return
	}
	run := commands[fields[0]]
	if run == nil {
		s.t.Fatalf("there is no command %q", line)
	}
	if s.c == nil && fields[0] != "cluster" {
		s.t.Fatalf("a script begins with a cluster, not with %q", line)
	}
	run(s, newLine(s, line, fields[1:], inner))
}

func (s *scene) print(format string, args ...any) { fmt.Fprintf(&s.printed, format+"\n", args...) }

// line is a command with its arguments: words, and options as name=value.
type line struct {
	s       *scene
	text    string
	words   []string
	options map[string]string
	inner   []string
}

func newLine(s *scene, text string, fields, inner []string) *line {
	l := &line{s: s, text: text, options: make(map[string]string), inner: inner}
	for _, field := range fields {
		if name, value, isOption := strings.Cut(field, "="); isOption {
			l.options[name] = value
		} else {
			l.words = append(l.words, field)
		}
	}
	return l
}

func (l *line) word(i int) string {
	if i >= len(l.words) {
		l.s.t.Fatalf("%q needs more words", l.text)
	}
	return l.words[i]
}

// flag says whether a word was given, and takes it away.
func (l *line) flag(name string) bool {
	for i, w := range l.words {
		if w == name {
			l.words = append(l.words[:i:i], l.words[i+1:]...)
			return true
		}
	}
	return false
}

func (l *line) number(name string, otherwise int) int {
	text, given := l.options[name]
	if !given {
		return otherwise
	}
	unit := 1
	if cut, kilobytes := strings.CutSuffix(text, "K"); kilobytes {
		text, unit = cut, 1<<10
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		l.s.t.Fatalf("%q: %v", l.text, err)
	}
	return n * unit
}

func (l *line) duration(name string, otherwise time.Duration) time.Duration {
	text, given := l.options[name]
	if !given {
		return otherwise
	}
	return l.parseDuration(text)
}

func (l *line) parseDuration(text string) time.Duration {
	d, err := time.ParseDuration(text)
	if err != nil {
		l.s.t.Fatalf("%q: %v", l.text, err)
	}
	return d
}
