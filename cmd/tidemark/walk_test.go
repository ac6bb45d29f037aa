package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// walk is how a command is called in TestEveryOutputOfEveryCommand, in each mode once more: N in a
// word is another number each time.
type walk struct {
	// before runs first, with N as well.
	before, args []string
	stdin        string
	// code is the exit code that is wanted; below 0: any. lines: it prints not only one table. quiet:
	// it may print nothing. file: it prints the lines of a file.
	code               int
	lines, quiet, file bool
	few                bool
	// few: the command is slow, and prints as another one does: two modes are enough. not are modes
	// that the command does not have.
	not string
}

// notWalked are commands that are not called there, and why.
var notWalked = map[string]string{
	"demo": "serves", "start": "serves", "elect": "holds on",
	"lock":  "prints what its command prints",
	"timer": "runs on", "coord watch": "watches on", "lease keep-alive": "renews on",
	"core add": "prints what core list does", "core promote": "prints what core list does",
	"core remove": "prints what core list does", "core replace": "prints what core list does",
	"recover survey": "wants stopped servers", "recover plan": "wants stopped servers",
	"recover apply": "wants stopped servers", "recover confirm": "wants stopped servers",
	"recover core plan": "wants stopped servers", "recover core apply": "wants stopped servers",
	"backup create": "prints what backup jobs does", "backup cancel": "prints what backup jobs does",
	"backup list": "wants a target", "backup show": "wants a target",
	"backup verify": "wants a target", "backup cat": "prints as dump does",
	"backup delete": "wants a target", "backup coordination": "writes a file",
	"backup drill": "wants a target",
	"debug zip":    "writes a file",
	"restore":      "prints what backup jobs does",
	"auth enable":  "shuts other tests out", "auth disable": "needs auth enable",
	"auth login": "needs auth enable", "coord import": "wants a new cluster",
	"help": "", "exit-codes": "text", "completion bash": "a script", "completion zsh": "a script",
	"completion fish": "a script", "completion powershell": "a script",
}

func walks(dir string, partition, child, node string) map[string]walk {
	words := strings.Fields
	bench := func(args string) walk {
		return walk{args: words("bench " + args + " --keyspace walk-bench --records 50 --clients 2 " +
			"--warm-up 1ms --duration 50ms"), lines: true}
	}
	schedule := func(verb, name string) []string {
		return words("backup schedule " + verb + " file://" + dir + "/backups --paused --name " + name)
	}
	lease := "00000000075bcdNN" // two more digits make it the number of this run
	return map[string]walk{
		"secret":  {args: words("secret"), lines: true},
		"cert ca": {args: words("cert ca --dir " + dir + "/N")},
		"cert server": {
			before: words("cert ca --dir " + dir + "/sN"),
			args:   words("cert server db1 --dir " + dir + "/sN"),
		},
		"cert client": {
			before: words("cert ca --dir " + dir + "/cN"),
			args:   words("cert client app --dir " + dir + "/cN"),
		},
		"status":            {args: words("status"), lines: true},
		"health":            {args: words("health --http 127.0.0.1:1"), code: exit.Failed},
		"nodes":             {args: words("nodes")},
		"core list":         {args: words("core list")},
		"keyspace create":   {args: words("keyspace create walk-N --partitions hash:2"), quiet: true},
		"keyspace list":     {args: words("keyspace list")},
		"keyspace describe": {args: words("keyspace describe walk")},
		"keyspace alter": {args: words("keyspace alter walk --split-size 256MiB --quota-bytes 1TiB"),
			quiet: true},
		"keyspace drop": {
			before: words("keyspace create walk-dropped-N"),
			args:   words("keyspace drop walk-dropped-N --yes"),
			quiet:  true,
		},
		"backup jobs":            {args: words("backup jobs"), quiet: true},
		"backup schedule create": {args: schedule("create", "walk-N")},
		"backup schedule delete": {args: words("backup schedule delete walk"),
			before: schedule("set", "walk")},
		"backup schedule list": {args: words("backup schedule list"),
			before: schedule("set", "walk")},
		"backup schedule pause": {args: words("backup schedule pause walk"),
			before: schedule("set", "walk")},
		"backup schedule resume": {args: words("backup schedule resume walk"),
			before: schedule("set", "walk")},
		"backup schedule run": {args: words("backup schedule run walk"),
			before: schedule("set", "walk")},
		"backup schedule set": {args: schedule("set", "walk")},
		"consumers":           {args: words("consumers walk")},
		"consumers delete": {
			before: words("changes walk --consumer cN --since -10s --until -5s"),
			args:   words("consumers delete walk cN"),
			quiet:  true,
		},
		"partitions":        {args: words("partitions walk")},
		"slow":              {args: words("slow --redact"), quiet: true},
		"doctor":            {args: words("doctor"), code: -1, lines: true},
		"top":               {args: words("top"), lines: true},
		"node drain":        {args: words("node drain 1 --dry-run")},
		"node undo":         {args: words("node undo 1 --dry-run")},
		"node decommission": {args: words("node decommission 1 --dry-run")},
		"move": {
			args:  words("move " + partition + " --cancel"),
			code:  exit.NotFound,
			quiet: true,
		},
		"transfer": {
			args: words("transfer " + partition + " --to " + node),
		},
		"split":            {args: words("split walk --at kN --wait")},
		"merge":            {args: words("merge " + child), code: exit.NotFound, quiet: true},
		"placement show":   {args: words("placement show")},
		"placement pause":  {args: words("placement show")},
		"placement resume": {args: words("placement resume")},
		"placement limits": {args: words("placement limits --operators 1024")},
		"upgrade status":   {args: words("upgrade status"), lines: true},
		"upgrade finalize": {args: words("upgrade finalize"), lines: true},
		"upgrade auto":     {args: words("upgrade auto off"), lines: true},
		"operators":        {args: words("operators")},
		"events":           {args: words("events")},
		"why":              {args: words("why walk"), lines: true},
		"debug txns":       {args: words("debug txns walk")},
		"get":              {args: words("get walk a b long"), lines: true},
		"put":              {args: words("put walk pN v")},
		"delete":           {args: words("delete walk pN")},
		"cas":              {args: words("cas walk casN v --expect-absent")},
		"increment":        {args: words("increment walk n")},
		"scan":             {args: words("scan walk")},
		"count":            {args: words("count walk")},
		"txn": {
			args:  words("txn"),
			stdin: "get walk long\nscan walk\ncount walk\n",
			lines: true,
		},
		"txn list": {args: words("txn list walk")},
		"txn abort": {
			args:  words("txn abort 01234567-89ab-cdef-0123-456789abcdef"),
			code:  exit.Usage,
			quiet: true,
		},
		"load":          {args: words("load walk"), stdin: "l\tv\n", lines: true},
		"dump":          {args: words("dump walk"), lines: true, file: true, not: "raw headers"},
		"changes":       {args: words("changes walk --since -10s --until -5s"), lines: true},
		"auth status":   {args: words("auth status")},
		"auth role add": {args: words("auth role add walkN")},
		"auth role delete": {
			before: words("auth role add goneN"),
			args:   words("auth role delete goneN"),
		},
		"auth role list": {before: words("auth role add listedN"), args: words("auth role list")},
		"auth role show": {
			before: words("auth role add shownN"),
			args:   words("auth role show shownN"),
		},
		"auth role grant": {
			before: words("auth role add grantedN"),
			args:   words("auth role grant grantedN read config/ --prefix"),
		},
		"auth role revoke": {
			args:  words("auth role revoke no-role k"),
			code:  exit.NotFound,
			quiet: true,
		},
		"auth user add": {args: words("auth user add walkN --no-password")},
		"auth user password": {
			args:  words("auth user password nobody --new-password-file -"),
			stdin: "secret",
			code:  exit.NotFound,
			quiet: true,
		},
		"auth user delete": {
			before: words("auth user add goneN --no-password"),
			args:   words("auth user delete goneN"),
		},
		"auth user list": {
			before: words("auth user add listedN --no-password"),
			args:   words("auth user list"),
		},
		"auth user show": {
			before: words("auth user add shownN --no-password"),
			args:   words("auth user show shownN"),
		},
		"auth user grant": {
			args:  words("auth user grant nobody nothing"),
			code:  exit.NotFound,
			quiet: true,
		},
		"auth user revoke": {
			args:  words("auth user revoke nobody nothing"),
			code:  exit.NotFound,
			quiet: true,
		},
		"coord get": {
			before: words("coord put walk/a " + strings.Repeat("v", 150)),
			args:   words("coord get walk/ --prefix"),
			lines:  true,
		},
		"coord put": {args: words("coord put walk/N v")},
		"coord del": {args: words("coord del walk/none")},
		"coord txn": {args: words("coord txn"), stdin: "\n\nget walk/a\n\n", lines: true},
		"coord compact": {
			before: words("coord put walk/c N"),
			args:   words("coord compact 2"),
			code:   -1,
			quiet:  true,
		},
		"coord export": {args: words("coord export " + dir + "/export-N")},
		"lease grant":  {args: words("lease grant 60s")},
		"lease revoke": {args: words("lease revoke " + lease), code: exit.NotFound, quiet: true},
		"lease ttl":    {args: words("lease ttl " + lease), code: -1, quiet: true},
		"lease list":   {before: words("lease grant 60s"), args: words("lease list")},
		"bench put":    bench("put"),
		"bench get":    bench("get"),
		"bench scan":   bench("scan"),
		"bench ycsb":   bench("ycsb"),
		"bench txn":    bench("txn"),
		"bench bank": {
			args:  words("bench bank --keyspace walk-bench --accounts 10 --clients 2 --duration 50ms"),
			lines: true,
			few:   true,
		},
		"bench counters": {
			args:  words("bench counters --keyspace walk-bench --counters 4 --clients 2 --duration 50ms"),
			lines: true,
			few:   true,
		},
		"version": {args: words("version")},
		"man":     {args: words("man --dir " + dir + "/man")},
	}
}

// leaves are the commands that do something.
func leaves(root *cobra.Command) (all []*cobra.Command) {
	for _, cmd := range root.Commands() {
		if cmd.Runnable() && cmd.Flags().Lookup("output") != nil || !cmd.HasSubCommands() {
			all = append(all, cmd)
		}
		all = append(all, leaves(cmd)...)
	}
	return all
}

// Every command in every mode: no line is wider than the terminal, through a pipe nothing is cut,
// tsv has as many cells in each line, with names only if they are wanted, and json is objects.
func TestEveryOutputOfEveryCommand(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "walk", "--partitions", "range", "--split-at", "long", "--no-auto")
	long := strings.Repeat("tab\tand\nnewline ", 20)
	b.run(long, exit.OK, "put", "walk", "long", "-")
	b.ok("put", "walk", "a", "1")
	b.ok("put", "walk", "b", long, "--ttl", "1h")
	b.ok("put", "walk", strings.Repeat("key", 50), "v")
	var partition struct{ ID, Leader uint64 }
	for partition.Leader == 0 {
		line, _, _ := strings.Cut(b.ok("partitions", "walk", "-o", "json"), "\n")
		if err := json.Unmarshal([]byte(line), &partition); err != nil {
			t.Fatal(err)
		}
	}
	cases := walks(t.TempDir(), fmt.Sprint(partition.ID), "999999", fmt.Sprint(partition.Leader))
	b.ok("keyspace", "create", "walk-bench", "--partitions", "hash:8")
	run := 0
	for _, cmd := range leaves((&app{}).root()) {
		name := strings.TrimPrefix(cmd.CommandPath(), "tidemark ")
		c, ok := cases[name]
		if _, not := notWalked[name]; !ok {
			if !not {
				t.Errorf("%s is not called by this test", name)
			}
			continue
		}
		t.Run(name, func(t *testing.T) {
			for _, mode := range []struct {
				name  string
				width int
				args  []string
			}{{"80 columns", 80, nil}, {"100 columns", 100, nil}, {"pipe", 0, nil},
				{"json", 0, []string{"-o", "json"}}, {"tsv", 0, []string{"-o", "tsv"}},
				{"headers", 0, []string{"-o", "tsv", "--headers"}}, {"raw", 0, []string{"-o", "raw"}}} {
				if slices.Contains(strings.Fields(c.not), mode.name) ||
					c.few && (mode.width == 100 || mode.args != nil) {
					continue
				}
				run++
				b := shared{t, b.environment}
				number := func(args []string) (numbered []string) {
					for _, arg := range args {
						numbered = append(numbered, strings.ReplaceAll(arg, "N", fmt.Sprint(run)))
					}
					return numbered
				}
				if c.before != nil {
					b.walk(0, exit.OK, "", number(c.before)...)
				}
				if name == "transfer" { // the one before goes on in the background
					for b.run("", exit.OK, "operators", "-o", "tsv").out != "" {
						time.Sleep(10 * time.Millisecond)
					}
				}
				out := b.walk(mode.width, c.code, c.stdin, append(number(c.args), mode.args...)...)
				checkOutput(t, mode.name, mode.width, c, out)
			}
		})
	}
	for name := range cases {
		if !slices.ContainsFunc(leaves((&app{}).root()), func(cmd *cobra.Command) bool {
			return cmd.CommandPath() == "tidemark "+name
		}) {
			t.Errorf("there is no command %q", name)
		}
	}
}

// walk runs a command on a terminal of so many columns, or through a pipe.
func (b shared) walk(width, code int, stdin string, args ...string) string {
	b.t.Helper()
	var out, errs bytes.Buffer
	got := run(b.t.Context(), args, streams{in: strings.NewReader(stdin), out: &out, err: &errs,
		outTerminal: width > 0, width: width,
		getenv: func(name string) string { return b.environment[name] }})
	if got != code && code >= 0 {
		b.t.Errorf("%q: exit code %d, want %d: %.500s%.500s", args, got, code, out.String(),
			errs.String())
	}
	return out.String()
}

func checkOutput(t *testing.T, mode string, width int, c walk, out string) {
	t.Helper()
	if out == "" && !c.quiet && mode != "tsv" && mode != "json" && mode != "raw" {
		t.Errorf("%s: it printed nothing", mode)
	}
	if width > 0 && !c.file {
		for line := range strings.Lines(plainColors.Replace(out)) {
			if w := text.StringWidth(strings.TrimSuffix(line, "\n")); w > width {
				t.Errorf("%s: a line of %d: %s", mode, w, line)
			}
		}
	}
	switch mode {
	case "pipe":
		if strings.Contains(out, "…") || strings.Contains(out, "not shown") ||
			strings.Contains(out, "\x1b") {
			t.Errorf("through a pipe: %s", out)
		}
	case "json":
		decoder := json.NewDecoder(strings.NewReader(out))
		for decoder.More() {
			var object map[string]any
			if err := decoder.Decode(&object); err != nil {
				t.Errorf("%v: %s", err, out)
				break
			}
		}
	case "tsv", "headers":
		if c.lines {
			return
		}
		cells := -1
		for line := range strings.Lines(out) {
			if n := strings.Count(line, "\t"); cells >= 0 && n != cells {
				t.Errorf("%s: %d cells, and %d: %s", mode, cells+1, n+1, out)
			} else {
				cells = n
			}
		}
	}
}

var plainColors = strings.NewReplacer("\x1b[32m", "", "\x1b[33m", "", "\x1b[1;31m", "",
	"\x1b[0m", "")
