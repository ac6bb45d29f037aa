package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/argument"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/hlc"
)

func TestParsePartitioning(t *testing.T) {
	for text, want := range map[string]int{"range": 1, "hash": 32, "hash:1": 1, "hash:16384": 16384} {
		if option, got, err := argument.ParsePartitioning(text); err != nil || got != want ||
			option == nil {
			t.Errorf("%s: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "hash:", "hash:0", "hash:16385", "hash:-1", "hash:x",
		"hash:8:8", "range:3", "list"} {
		var coded *exit.Error
		if _, _, err := argument.ParsePartitioning(text); !errors.As(err, &coded) ||
			coded.Code != exit.Usage {
			t.Errorf("%q: want a usage error, got %v", text, err)
		}
	}
}

func TestParseLocality(t *testing.T) {
	for text, want := range map[string][2]string{
		"": {}, "region=eu,zone=a": {"eu", "a"}, "zone=a": {"", "a"}, "zone=a, region=eu": {"eu", "a"},
	} {
		region, zone, err := argument.ParseLocality(text)
		if err != nil || region != want[0] || zone != want[1] {
			t.Errorf("%q: %q, %q, %v", text, region, zone, err)
		}
	}
	for _, text := range []string{"eu", "region=", "rack=3", "zone=a,zone=b", "region=eu,"} {
		if _, _, err := argument.ParseLocality(text); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
}

func TestParseMoment(t *testing.T) {
	now := hlc.Timestamp{Wall: 1763632000_000000005, Logical: 7}
	for text, want := range map[string]hlc.Timestamp{
		"1763632000.123456789.3":      {Wall: 1763632000_123456789, Logical: 3},
		"2025-11-20T09:46:40Z":        {Wall: 1763632000_000000000},
		"2025-11-20T10:46:40.5+01:00": {Wall: 1763632000_500000000},
		"-30s":                        {Wall: 1763631970_000000005},
		"-1h0m1ms":                    {Wall: 1763628399_999000005},
		now.Next().String():           now.Next(),
	} {
		moment, err := argument.ParseMoment(text)
		if err != nil || moment.Relative() != strings.HasPrefix(text, "-") {
			t.Errorf("%s: %+v, %v", text, moment, err)
		}
		if got, err := moment.At(now); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-", "-30", "yesterday", "2999-01-01T00:00:00Z",
		"0001-01-01T00:00:00Z", "30s", "--30s", "-2000000000h", "2025-11-20"} {
		if _, err := argument.ParseMoment(text); err == nil {
			t.Errorf("%q: want an error", text)
		}
	}
	for _, text := range []string{"-500000h", "-2000000h"} {
		moment, err := argument.ParseMoment(text)
		if err != nil {
			t.Fatal(err)
		}
		if at, err := moment.At(now); err == nil {
			t.Errorf("%q: want an error, got %s", text, at)
		}
	}
}

func TestEncodings(t *testing.T) {
	for _, c := range []struct {
		e          argument.Encoding
		text, want string
	}{
		{argument.Encoding{}, `a\x00`, `a\x00`},
		{argument.Encoding{Hex: true}, "00ff", "\x00\xff"},
		{argument.Encoding{Base64: true}, "AP8=", "\x00\xff"},
		{argument.Encoding{Escaped: true}, `a\x00\t\\`, "a\x00\t\\"},
	} {
		if got, err := c.e.DecodeKey(c.text); err != nil || string(got) != c.want {
			t.Errorf("%+v %s: %q, %v", c.e, c.text, got, err)
		}
	}
	for _, c := range []struct {
		e    argument.Encoding
		text string
	}{{argument.Encoding{Hex: true}, "0"}, {argument.Encoding{Hex: true}, "zz"},
		{argument.Encoding{Base64: true}, "A"}, {argument.Encoding{Escaped: true}, `\q`},
		{argument.Encoding{}, ""}} {
		if _, err := c.e.DecodeKey(c.text); err == nil {
			t.Errorf("%+v %q: want an error", c.e, c.text)
		}
	}
}

// result is what one run of the program left.
type result struct {
	code     int
	out, err string
}

// command runs the program in the process, without a terminal.
func command(t *testing.T, stdin string, environment map[string]string, args ...string) result {
	t.Helper()
	var out, errors bytes.Buffer
	code := run(t.Context(), args, streams{
		in: strings.NewReader(stdin), out: &out, err: &errors,
		getenv: func(name string) string { return environment[name] },
	})
	return result{code, out.String(), errors.String()}
}

// Mistakes on the command line are refused before anything is asked of a cluster: there is none
// here.
func TestMistakesOnTheCommandLine(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"frobnicate", "unknown command \"frobnicate\" for \"tidemark\"\n"},
		{"set fruit a b", `unknown command "set" for "tidemark"; did you mean "put"?`},
		{"ls", `did you mean "scan" (keys of a keyspace) or "keyspace list"?`},
		{"rm fruit a", `did you mean "delete"?`},
		{"watch fruit", `did you mean "changes" (a keyspace) or "coord watch"?`},
		{"export fruit", `did you mean "dump", "coord export" or "backup create"?`},
		{"keyspace rm fruit", `did you mean "drop"?`},
		{"node ls", `did you mean "tidemark nodes"?`},
		{"auth user create me", `did you mean "add"?`},
		{"cas fruit a new --absent", "unknown flag: --absent; did you mean --expect-absent?"},
		{"scan fruit --start a", "unknown flag: --start; did you mean --from?"},
		{"nodes --no-headers", "unknown flag: --no-headers; did you mean --headers?"},
		{"nodes --color sometimes", "--color sometimes: want auto, always, never"},
		{"gett fruit", `unknown command "gett" for "tidemark"; did you mean "get"?`},
		{"keyspace creat fruit",
			`unknown command "creat" for "tidemark keyspace"; did you mean "create"?`},
		{"bench bnak", `did you mean "bank"?`},
		{"start --lisetn x", "unknown flag: --lisetn; did you mean --listen?"},
		{"get fruit a --endpoint x", "did you mean --endpoints?"},
		{"keyspace creat fruit --output json",
			`unknown command "creat" for "tidemark keyspace"; did you mean "create"?`},
		{"debug replicas --output json", `unknown command "replicas" for "tidemark debug"`},
		{"statsu -o json", `unknown command "statsu" for "tidemark"; did you mean "status"?`},
		{"txn lst", `unknown command "lst" for "tidemark txn"; did you mean "list"?`},
		{"txn transfer.txt", "a script is read from standard input: tidemark txn < transfer.txt"},
		{"put fruit apple", "put takes NAME KEY VALUE"},
		{"get fruit", "get takes NAME KEY..., got 1 argument\n"},
		{"get fruit apple --colour", "unknown flag: --colour"},
		{"get fruit apple --output yaml",
			`unknown output format "yaml": use one of table, json, tsv, raw`},
		{"get fruit zz --hex", `key "zz": encoding/hex: invalid byte`},
		{"get fruit a --hex --base64", "--base64 and --hex exclude each other: give one of them"},
		{"get fruit a --at tomorrow", `"tomorrow" is not a moment`},
		{"keyspace create fruit --partitions hash:0", "the number of hash partitions is 1 to 16384"},
		{"keyspace create fruit --partitions=", "write hash:N (for instance hash:32) or range"},
		{"keyspace create fruit --partitions hash:8 --split-at a", "--split-at is for range"},
		{"keyspace create fruit --partitions range --split-at b --split-at a", "ascending"},
		{"keyspace create fruit --partitions range --split-at a --split-at a", "twice"},
		{"keyspace create fruit --partitions range --split-at=", "empty"},
		{"keyspace create fruit --partitions hash:8 --replicas 2", "1, 3 or 5"},
		{"partitions --top colour", "--top colour: want load, size, reads or writes"},
		{"partitions --top load --limit 0", "--limit 0: at least 1"},
		{"keyspace drop fruit", "There is no terminal to ask at: give --yes"},
		{"scan fruit --prefix a --from b", "--from and --prefix exclude each other: give one of them"},
		{"scan fruit --limit -1", "--limit"},
		{"scan fruit --limit many", "--limit many: give a whole number\n"},
		{"scan fruit --limit 99999999999999999999",
			"--limit 99999999999999999999: the number is too large\n"},
		{"get fruit a --timeout 10",
			"--timeout 10: give a time with its unit, for instance 500ms, 30s or 1h\n"},
		{"get fruit a --timeout -1s",
			"--timeout -1s: give the time to try each request, or 0 for no limit"},
		{"status --wait=perhaps", "--wait perhaps: give true or false\n"},
		{"get fruit a --at 1970-01-01T00:00:00Z", "is before 1971: there is no such timestamp"},
		{"get fruit a --at 2999-01-01T00:00:00Z", "is after 2261: there is no such timestamp"},
		{"keyspace alter fruit --txn-max-age 0s", "--txn-max-age 0s: it is from 1s to 168h"},
		{"keyspace alter fruit --quota-throughput 100", "--quota-throughput 100: it is at least 1KiB"},
		{"keyspace create fruit --quota-bytes much", "512MiB"},
		{"keyspace create fruit --partitions hash:2 --txn-max-idle 10ms",
			"--txn-max-idle 10ms: it is from 1s to 168h"},
		{"keyspace create fruit --partitions hash:2 --gc-window 0s",
			"--gc-window 0s: give whole seconds, at least one"},
		{"get fruit a --tls-cert c.pem",
			"--tls-cert and --tls-key belong together: give both or neither"},
		{"cas fruit a new", "say what the key must hold"},
		{"cas fruit a --expect old", "give the new value, or --delete"},
		{"cas fruit a new --expect old --delete", "--delete"},
		{"load fruit /does/not/exist", "/does/not/exist"},
		{"load fruit - --format csv", `unknown file format "csv"`},
		{"bench ycsb --workload g", `unknown YCSB workload "g"`},
		{"bench txn --keys-per-txn 0", "--keys-per-txn 0: it is at least 1"},
		{"bench txn --keys-per-txn -3", "--keys-per-txn -3: it is at least 1"},
		{"bench txn --keys-per-txn 5 --records 4",
			"--keys-per-txn 5: it is at most the number of records, 4"},
		{"bench txn --partitions-per-txn 0", "--partitions-per-txn 0: it is at least 1"},
		{"bench txn --partitions-per-txn -1", "--partitions-per-txn -1: it is at least 1"},
		{"bench txn --keys-per-txn 2 --partitions-per-txn 3",
			"--partitions-per-txn 3: it is at most the number of keys of a transaction, 2"},
		{"bench txn --reads -2", "--reads -2: it is at least 0, or -1 for all"},
		{"bench txn --reads 5", "--reads 5: it is at most the number of keys of a transaction, 4"},
		{"bench txn --writes -2", "--writes -2: it is at least 0, or -1 for all"},
		{"bench txn --writes 5", "--writes 5: it is at most the number of keys of a transaction, 4"},
		{"bench txn --reads 1 --writes 2", "--writes 2: with 1 of 4 read it is at least 3"},
		{"bench txn --reads 0 --writes 0", "--writes 0: with 0 of 4 read it is at least 4"},
		{"bench txn --records 1", "--keys-per-txn 4: it is at most the number of records, 1"},
		{"bench txn --records 0", "--records 0: it is at least 1"},
		{"bench txn --contention 1", "--contention 1: it is at least 0 and below 1"},
		{"bench txn --contention nan", "--contention NaN: it is at least 0 and below 1"},
		{"bench txn --value-size 8388609", "--value-size 8388609: it is at most 8388608 bytes"},
		{"bench txn --warm-up -1s", "--warm-up -1s: it is at least 0"},
		{"bench txn --connections 0", "--connections 0: it is at least 1"},
		{"bench bank --accounts 0", "--accounts 0: it is 2 to 10000"},
		{"bench bank --accounts 1", "--accounts 1: it is 2 to 10000"},
		{"bench bank --accounts 10001", "--accounts 10001: it is 2 to 10000"},
		{"bench bank --audits 1.5", "--audits 1.5: it is 0 to 1"},
		{"bench bank --operation-timeout 0s", "--operation-timeout 0s: it is positive"},
		{"bench counters --counters 0", "--counters 0: it is 1 to 10000"},
		{"bench counters --counters -1", "--counters -1: it is 1 to 10000"},
		{"bench counters --counters 10001", "--counters 10001: it is 1 to 10000"},
		{"bench counters --operation-timeout -1s", "--operation-timeout -1s: it is positive"},
		{"bench put --clients 0", "--clients 0: it is at least 1"},
		{"bench put --clients 100001", "--clients 100001: it is 1 to 100000"},
		{"bench put --duration 0s", "--duration 0s: it is positive"},
		{"bench put --value-size -1", "--value-size -1: it is at least 0"},
		{"bench get --value-size 8388609", "--value-size 8388609: it is at most 8388608 bytes"},
		{"bench scan --rows 0", "--rows 0: it is at least 1"},
		{"bench ycsb --seed 0", "--seed 0: it is at least 1"},
		{"bench put --keys normal", `unknown key distribution "normal"`},
		{"start", "--dir"},
		{"start --dir /tmp/x --listen 127.0.0.1:1 --core 127.0.0.1:1 --roles king", "king"},
		{"start --dir /tmp/x --listen 127.0.0.1:0 --core 127.0.0.1:1", "the port is a number"},
		{"start --dir /tmp/x --listen :7400 --core 127.0.0.1:1", "--advertise"},
		{"start --dir /tmp/x --listen 127.0.0.1:1 --core 127.0.0.1:1,127.0.0.1:2,127.0.0.1:2",
			"listed twice"},
		{"core add", "ADDRESS"},
		{"core add 127.0.0.1", "127.0.0.1"},
		{"core add 127.0.0.1 --learner", "127.0.0.1"},
		{"core promote", "MEMBER"},
		{"core promote 127.0.0.1", "127.0.0.1"},
		{"core remove", "MEMBER"},
		{"core replace", "MEMBER and ADDRESS"},
		{"split", "KEYSPACE"},
		{"split fruit", "--at KEY"},
		{"split fruit --at m --hex", "hex"},
		{"keyspace alter fruit", "--split-size"},
		{"keyspace alter fruit --split-at m --hex", "hex"},
		{"core list extra", "takes no arguments"},
		{"start --dir /tmp/x --listen 127.0.0.1:1 --core 127.0.0.1:1 --log-level loud", "--log-level"},
		{"start --dir /tmp/x --listen 127.0.0.1:1 --core 127.0.0.1:1 --locality rack=1",
			"region and zone"},
		{"demo --nodes 0", "--nodes"},
		{"demo --cores 2", "1, 3 or 5"},
		{"version extra", "version takes no arguments"},
	} {
		got := command(t, "", nil, strings.Fields(c.args)...)
		if got.code != exit.Usage && !strings.HasPrefix(c.args, "load fruit /does") {
			t.Errorf("%s: exit code %d, want %d", c.args, got.code, exit.Usage)
		}
		if !strings.HasPrefix(got.err, "tidemark: ") || !strings.Contains(got.err, c.want) ||
			got.out != "" {
			t.Errorf("%s:\nprinted %q\nand said %q\nwant %q in it", c.args, got.out, got.err, c.want)
		}
	}
}

// Every command explains itself, with an example where it takes arguments.
func TestEveryCommandHasHelp(t *testing.T) {
	root := (&app{}).root()
	for _, cmd := range append(root.Commands(), root.Commands()[0].Commands()...) {
		if cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if cmd.Short == "" {
			t.Errorf("%s: no short help", cmd.CommandPath())
		}
	}
	if got := command(t, "", nil, "help", "exit-codes"); got.code != 0 ||
		!strings.Contains(got.out, "130") {
		t.Errorf("help exit-codes: %+v", got)
	}
	if got := command(t, "", nil, "completion", "bash"); got.code != 0 ||
		!strings.Contains(got.out, "tidemark") {
		t.Errorf("completion bash: exit code %d", got.code)
	}
	if got := command(t, "", nil); got.code != 0 || !strings.Contains(got.out, "tidemark demo") {
		t.Errorf("no arguments: %+v", got)
	}
	if got := command(t, "", nil, "version", "-o", "json"); got.code != 0 ||
		!strings.Contains(got.out, `"version":`) {
		t.Errorf("version: %+v", got)
	}
}

// The help of every command fits a terminal of 100 columns, but for examples.
func TestHelpFits(t *testing.T) {
	a := &app{streams: streams{getenv: func(string) string { return "" }}}
	var visit func(cmd *cobra.Command)
	visit = func(cmd *cobra.Command) {
		got := command(t, "", nil, append(strings.Fields(cmd.CommandPath())[1:], "--help")...)
		for line := range strings.Lines(got.out) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 100 &&
				!strings.HasPrefix(line, "  tidemark ") {
				t.Errorf("%s: %d columns: %s", cmd.CommandPath(), n, line)
			}
		}
		for _, sub := range cmd.Commands() {
			visit(sub)
		}
	}
	visit(a.root())
}
