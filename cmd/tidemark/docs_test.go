package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// repository is what pages may point to: files and folders, make targets, tests, metrics, and
// flags.
type repository struct {
	files                          map[string]bool // with folders, by their paths from the top
	targets, tests, metrics, flags map[string]bool
}

var (
	makeTarget   = regexp.MustCompile(`(?m)^([a-z-]+):`)
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)[A-Za-z]\w*)\(`)
	// A metric's name, whole or without its first words: "tidemark_node_ready", "gc_runs_total".
	metricLiteral = regexp.MustCompile(`"([a-z0-9]+_[a-z0-9_]+)"`)
	// A flag of the test binaries and of the programs below bench: flag.Int("sim.seed", ...).
	flagDefinition = regexp.MustCompile(`(?:flag|flags|set|fs)\.\w+\((?:&?[\w.]+, )?"([a-z][a-z.-]+)"`)
)

func readRepository(t *testing.T) repository {
	t.Helper()
	r := repository{files: make(map[string]bool), targets: make(map[string]bool),
		tests: make(map[string]bool), metrics: make(map[string]bool), flags: make(map[string]bool)}
	note := func(into map[string]bool, found [][]string) {
		for _, m := range found {
			into[m[1]] = true
		}
	}
	err := fs.WalkDir(os.DirFS("../.."), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (name == ".git" || name == "bin" || d.Name() == "node_modules"):
			return fs.SkipDir
		}
		r.files[name] = true
		if d.IsDir() || filepath.Ext(name) != ".go" && name != "Makefile" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			return err
		}
		switch {
		case name == "Makefile":
			note(r.targets, makeTarget.FindAllStringSubmatch(string(text), -1))
		case strings.HasSuffix(name, "_test.go"):
			note(r.tests, testFunction.FindAllStringSubmatch(string(text), -1))
		}
		note(r.metrics, metricLiteral.FindAllStringSubmatch(string(text), -1))
		note(r.flags, flagDefinition.FindAllStringSubmatch(string(text), -1))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { r.flags[f.Name] = true })
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit((&app{streams: streams{getenv: func(string) string { return "" }}}).root())
	return r
}

var (
	fenced      = regexp.MustCompile("(?ms)^```.*?^```")
	heading     = regexp.MustCompile(`(?m)^#+ +(.*)$`)
	headingMark = regexp.MustCompile("[^a-z0-9 _-]")
	link        = regexp.MustCompile(`\]\(([^)\s]*)\)`)
	mentioned   = regexp.MustCompile(`[\w.-]+(?:/[\w.*-]+)+/?`)
	madeBy      = regexp.MustCompile(`(?:^\s*|&& |; )make ([a-z]+(?:-[a-z]+)*)(?:$|\s+[A-Z#&]|\s*;)`)
	testNamed   = regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z]\w*)`)
	metricNamed = regexp.MustCompile(`\btidemark_[a-z][a-z0-9_]+`)
	code        = regexp.MustCompile("`[^`]+`")
	flagNamed   = regexp.MustCompile(`(?:^|[\s(])--([a-z][a-z-]+)`)
	ourCommand  = regexp.MustCompile(`^\s*(?:tidemark |--)`)
)

// anchors are the names that GitHub gives to the headings of a page.
func anchors(page string) map[string]bool {
	found := make(map[string]bool)
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
		name := headingMark.ReplaceAllString(strings.ToLower(m[1]), "")
		name = strings.ReplaceAll(name, " ", "-")
		for i := 1; found[name]; i++ {
			name = fmt.Sprintf("%s-%d", strings.TrimSuffix(name, fmt.Sprintf("-%d", i-1)), i)
		}
		found[name] = true
	}
	return found
}

// generated are paths that a command makes.
var generated = regexp.MustCompile(`^bin/|^go/bin/|^cluster/`)

// foreign are flags of other programs that pages show.
var foreign = []string{"always", "build-arg", "force", "force-conflicts", "from-file", "help",
	"mark-compacted", "reset-then-reuse-values", "rm", "set", "strict-reconfig-check", "variant"}

// Pages point only to what there is: files, headings, make targets, tests, metrics, and flags.
func TestDocsPointToWhatExists(t *testing.T) {
	r := readRepository(t)
	top := make(map[string]bool)
	for name := range r.files {
		first, _, deeper := strings.Cut(name, "/")
		if deeper {
			top[first] = true
		}
	}
	var pages []string
	for name := range r.files {
		if filepath.Ext(name) == ".md" && name != "CHANGELOG.md" {
			pages = append(pages, name)
		}
	}
	slices.Sort(pages)
	text := make(map[string]string)
	for _, name := range pages {
		page, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		text[name] = string(page)
	}
	for _, name := range pages {
		page := text[name]
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(page, ""), -1) {
			to, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(to, "://") || strings.HasPrefix(to, "mailto:") {
				continue
			}
			target := name
			if to != "" {
				target = path.Join(path.Dir(name), to)
			}
			if !r.files[target] {
				t.Errorf("%s links to %s, which is not there", name, m[1])
			} else if anchor != "" && !anchors(text[target])[anchor] {
				t.Errorf("%s links to %s, but %s has no such heading", name, m[1], target)
			}
		}
		for _, m := range mentioned.FindAllString(page, -1) {
			first, _, _ := strings.Cut(m, "/")
			if !top[first] || generated.MatchString(m) {
				continue
			}
			if !r.exists(strings.TrimRight(m, "/.")) {
				t.Errorf("%s names %s, which is not there", name, m)
			}
		}
		spans := code.FindAllString(fenced.ReplaceAllString(page, ""), -1)
		for _, c := range slices.Concat(spans, indented(page)) {
			c = strings.Trim(c, "`")
			for _, m := range madeBy.FindAllStringSubmatch(c, -1) {
				if !r.targets[m[1]] {
					t.Errorf("%s names make %s, which is no target of the Makefile", name, m[1])
				}
			}
			if !ourCommand.MatchString(c) {
				continue
			}
			for _, m := range flagNamed.FindAllStringSubmatch(c, -1) {
				if !r.flags[m[1]] && !slices.Contains(foreign, m[1]) {
					t.Errorf("%s names the flag --%s, which no command has", name, m[1])
				}
			}
		}
		for _, m := range testNamed.FindAllString(page, -1) {
			if !begins(r.tests, m) && m != "TestMine" {
				t.Errorf("%s names %s, which is no test", name, m)
			}
		}
		for _, m := range slices.Concat(metricNamed.FindAllString(page, -1), metricTable(page)) {
			if !r.metric(m) {
				t.Errorf("%s names %s, which is no metric", name, m)
			}
		}
	}
}

// metricTable are the metrics of tables whose first column has them; such tables may leave out
// "tidemark_".
func metricTable(page string) (names []string) {
	inside := false
	for line := range strings.Lines(page) {
		inside = strings.HasPrefix(line, "| metric ") || inside && strings.HasPrefix(line, "|")
		if !inside {
			continue
		}
		cell, _, _ := strings.Cut(line[1:], "|")
		for _, span := range code.FindAllString(cell, -1) {
			name, _, _ := strings.Cut(strings.Trim(span, "`"), "{")
			names = append(names, "tidemark_"+strings.TrimPrefix(name, "tidemark_"))
		}
	}
	return names
}

// exists says whether a path, which may have a * in its last part, is one of a file or folder, or
// of an identifier of a package (kv/coord.Lock).
func (r repository) exists(name string) bool {
	if strings.Contains(name, "*") {
		for f := range r.files {
			if ok, err := path.Match(name, f); ok && err == nil {
				return true
			}
		}
		return false
	}
	if r.files[name] || r.files[name+".go"] {
		return true
	}
	dir, last := path.Split(name)
	pkg, _, identifier := strings.Cut(last, ".")
	return identifier && r.files[dir+pkg]
}

// metric says whether a name is one of a metric, or of one of its series. The code may have the
// name without its first words.
func (r repository) metric(name string) bool {
	for _, end := range []string{"_bucket", "_sum", "_count"} {
		name = strings.TrimSuffix(name, end)
	}
	if name == "tidemark_default" { // the network that Docker Compose makes
		return true
	}
	for rest, more := name, true; more; _, rest, more = strings.Cut(rest, "_") {
		if r.metrics[rest] {
			return true
		}
	}
	return strings.HasSuffix(name, "_") // tidemark_auth_*_total
}

func begins(names map[string]bool, beginning string) bool {
	for name := range names {
		if strings.HasPrefix(name, beginning) {
			return true
		}
	}
	return false
}

// indented are the lines of code blocks.
func indented(page string) (lines []string) {
	inside := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "```") {
			inside = !inside
		} else if inside || strings.HasPrefix(line, "    ") {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}
