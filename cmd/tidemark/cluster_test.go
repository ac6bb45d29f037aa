package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/watchdog"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// oneCluster is shared by the tests of verbs; each works in keyspaces of its own.
var oneCluster struct {
	sync.Once
	cluster *embedded.Cluster
	dir     string
	err     error
}

func TestMain(m *testing.M) {
	watchdog.Main()
	if os.Getenv("TIDEMARK_TEST_AS_PROGRAM") != "" { // see process_test.go
		main()
	}
	code := m.Run()
	if oneCluster.cluster != nil {
		if err := oneCluster.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing the cluster:", err)
			code = 1
		}
		_ = os.RemoveAll(oneCluster.dir)
	}
	if theEtcd.cluster != nil {
		if err := theEtcd.cluster.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "closing etcd:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// shared drives the program against the one cluster.
type shared struct {
	t           *testing.T
	environment map[string]string
}

func cluster(t *testing.T) shared {
	t.Helper()
	oneCluster.Do(func() {
		if oneCluster.dir, oneCluster.err = os.MkdirTemp("", "tidemark-test-"); oneCluster.err != nil {
			return
		}
		oneCluster.cluster, oneCluster.err = embedded.StartCluster(context.Background(),
			embedded.ClusterConfig{
				Dir: oneCluster.dir, Nodes: 3, Cores: 1, Listen: "127.0.0.1:0",
			})
		if oneCluster.err == nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			oneCluster.err = oneCluster.cluster.WaitReady(ctx)
		}
	})
	if oneCluster.err != nil {
		t.Fatal(oneCluster.err)
	}
	return shared{t, map[string]string{
		endpointsEnv: strings.Join(oneCluster.cluster.Endpoints(), ",")}}
}

// run runs a command with stdin and wants its exit code.
func (b shared) run(stdin string, code int, args ...string) result {
	b.t.Helper()
	end := slices.Index(args, "--")
	if end < 0 {
		end = len(args)
	}
	got := command(b.t, stdin, b.environment,
		slices.Concat(args[:end], []string{"--timeout", "60s"}, args[end:])...)
	if got.code != code {
		b.t.Fatalf("%q: exit code %d, want %d\nstdout: %.2000s\nstderr: %.2000s", args, got.code,
			code, got.out, got.err)
	}
	return got
}

// ok runs a command that must succeed, and returns what it printed.
func (b shared) ok(args ...string) string {
	b.t.Helper()
	return b.run("", exit.OK, args...).out
}

// until runs a command until its exit code is the given one. The command changes nothing.
func (b shared) until(code int, args ...string) {
	b.t.Helper()
	for began := time.Now(); ; {
		got := command(b.t, "", b.environment, append(args, "--timeout", "60s")...)
		if got.code == code {
			return
		}
		if time.Since(began) > time.Minute {
			b.t.Fatalf("%q: exit code %d for a minute, want %d\nstdout: %.2000s\nstderr: %.2000s", args,
				got.code, code, got.out, got.err)
		}
	}
}

// want runs a command that must succeed and print exactly this.
func (b shared) want(out string, args ...string) {
	b.t.Helper()
	if got := b.ok(args...); got != out {
		b.t.Errorf("%q printed\n%swant\n%s", args, got, out)
	}
}

// fails runs a command that must fail with a code, and say something.
func (b shared) fails(code int, words string, args ...string) {
	b.t.Helper()
	if got := b.run("", code, args...); !strings.Contains(got.err, words) || got.out != "" {
		b.t.Errorf("%q: printed %q and said %q, want %q in it", args, got.out, got.err, words)
	}
}

var timestampPattern = regexp.MustCompile(`^\d{10}\.\d{9}\.\d+\n$`)

func TestKeyspaceVerbs(t *testing.T) {
	b := cluster(t)
	created := b.ok("keyspace", "create", "ks-range", "--partitions", "range", "--split-at", "g",
		"--split-at", "p", "--gc-window", "10m", "--commit-wait")
	want := "ks-range  range                  3         3  10m0s      yes          active"
	if !strings.Contains(created, want) {
		t.Errorf("created:\n%swant in it:\n%s", created, want)
	}
	b.ok("keyspace", "create", "ks-hash", "--partitions", "hash:4", "--replicas", "1")
	b.fails(exit.Usage, "exists", "keyspace", "create", "ks-hash", "--partitions", "hash:8")
	b.fails(exit.Usage, "5", "keyspace", "create", "ks-five", "--partitions", "hash:8",
		"--replicas", "5")
	if list := b.ok("keyspace", "list", "-o", "tsv", "--headers"); !strings.Contains(list,
		"ks-hash\thash:4\t4\t1\t1h0m0s\tfalse\t") || !strings.HasPrefix(list, "name\t") {
		t.Errorf("list:\n%s", list)
	}
	partitions := b.ok("partitions", "ks-range", "-o", "json")
	if strings.Count(partitions, "\n") != 3 ||
		!strings.Contains(partitions, `"start":"g","end":"p"`) {
		t.Errorf("partitions:\n%s", partitions)
	}
	if described := b.ok("keyspace", "describe", "ks-range", "-o",
		"json"); !strings.Contains(described, `"partitions":3`) {
		t.Errorf("describe: %s", described)
	}
	b.fails(exit.NotFound, "no keyspace", "keyspace", "describe", "ks-none")
	b.fails(exit.Usage, "--yes", "keyspace", "drop", "ks-hash")
	b.ok("keyspace", "drop", "ks-hash", "--yes")
	b.fails(exit.NotFound, "ks-hash", "keyspace", "drop", "ks-hash", "--yes")
	b.fails(exit.NotFound, "ks-hash", "get", "ks-hash", "a")
}

func TestClusterVerbs(t *testing.T) {
	b := cluster(t)
	if nodes := b.ok("nodes", "-o", "tsv"); strings.Count(nodes, "\ttrue\t") < 3 {
		t.Errorf("nodes:\n%s", nodes)
	}
	if status := b.ok("status", "-o", "json"); !strings.Contains(status, `"ready":true`) {
		t.Errorf("status:\n%s", status)
	}
	if status := b.ok("status", "--wait", "--nodes", "3"); !strings.Contains(status, "3 of 3") {
		t.Errorf("status:\n%s", status)
	}
}

func TestPairVerbs(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "pairs", "--partitions", "hash:4")
	first := b.ok("put", "pairs", "apple", "green", "-o", "raw")
	if !timestampPattern.MatchString(first) {
		t.Fatalf("put printed %q", first)
	}
	first = strings.TrimSpace(first)
	second := strings.TrimSpace(b.ok("put", "pairs", "apple", "red", "-o", "raw"))
	b.want("red", "get", "pairs", "apple", "-o", "raw")
	b.want("KEY    VALUE  VERSION\napple  red    "+second+"\n", "get", "pairs", "apple")
	b.want(`{"key":"apple","value":"green","version":"`+first+`"}`+"\n", "get", "pairs", "apple",
		"-o", "json", "--at", first)
	b.fails(exit.NotFound, `the key has no value`, "get", "pairs", "pear")
	b.fails(exit.NotFound, `the key has no value`, "get", "pairs", "apple", "--at", "-45m")
	b.fails(exit.Usage, `4102444800.000000000.0 is 2100-01-01T00:00:00Z`, "get", "pairs", "apple",
		"--at", "2100-01-01T00:00:00Z")

	b.fails(exit.NotFound, `the key holds "red", version `+second, "cas", "pairs", "apple",
		"yellow", "--expect", "green")
	third := strings.TrimSpace(b.ok("cas", "pairs", "apple", "yellow", "--expect", "red",
		"-o", "raw"))
	b.ok("cas", "pairs", "apple", "brown", "--expect-version", third)
	b.fails(exit.NotFound, "holds", "cas", "pairs", "apple", "x", "--expect-absent")
	b.fails(exit.NotFound, "no value", "cas", "pairs", "pear", "x", "--expect", "y")
	b.ok("cas", "pairs", "pear", "ripe", "--expect-absent")
	b.ok("cas", "pairs", "pear", "--delete", "--expect", "ripe")
	b.want("1\n", "increment", "pairs", "visits", "-o", "raw")
	b.want("-41\n", "increment", "pairs", "visits", "--by", "-42", "-o", "raw")
	b.want("-41", "get", "pairs", "visits", "-o", "raw")
	b.fails(exit.Usage, `"brown" is not a decimal number`, "increment", "pairs", "apple")
	b.ok("delete", "pairs", "visits")
	b.fails(exit.NotFound, "no value", "get", "pairs", "pear")

	b.ok("put", "pairs", "00ff0a", "c0ffee", "--hex")
	b.want("\xc0\xff\xee", "get", "pairs", `\x00\xff\n`, "--escaped", "-o", "raw")
	b.want("\\x00\\xff\\n\t\\xc0\\xff\\xee\n", "scan", "pairs", "--prefix", "00",
		"--hex", "-o", "tsv")
	file := filepath.Join(t.TempDir(), "value")
	value := bytes.Repeat([]byte{0, 1, '\n', 0xff}, 50_000)
	if err := os.WriteFile(file, value, 0o600); err != nil {
		t.Fatal(err)
	}
	b.ok("put", "pairs", "large", "--value-file", file)
	if got := b.ok("get", "pairs", "large", "-o", "raw"); got != string(value) {
		t.Errorf("a value of %d bytes came back with %d", len(value), len(got))
	}
	got := b.run("", exit.NotFound, "get", "pairs", "apple", "nothing", "-o", "tsv", "--headers")
	if !strings.HasPrefix(got.out, "key\tvalue\tversion\napple\tbrown\t") ||
		!strings.Contains(got.err, `get "nothing"`) {
		t.Errorf("get of two: %+v", got)
	}
	b.want("DELETED\n      1\n", "delete", "pairs", "apple")
	b.want("DELETED\n      0\n", "delete", "pairs", "apple")
	b.fails(exit.Usage, "give a key, or a range", "delete", "pairs")
	b.fails(exit.Usage, "every key of the keyspace", "delete", "pairs", "--prefix", "", "--yes")
	b.fails(exit.Usage, "--yes", "delete", "pairs", "--all")
	b.want("2\n", "delete", "pairs", "--all", "--yes", "-o", "tsv")
	b.want("", "scan", "pairs")
}

func TestScanVerbs(t *testing.T) {
	for _, partitions := range [][]string{{"hash:4"},
		{"range", "--split-at", "c", "--split-at", "e"}} {
		b := cluster(t)
		name := "scan-" + partitions[0][:4]
		b.ok(append([]string{"keyspace", "create", name, "--partitions"}, partitions...)...)
		b.run("a\t1\nb\t2\nc\t3\nd1\t4\nd2\t5\ne\t6\n", exit.OK, "load", name)
		before := strings.TrimSpace(b.ok("put", name, "f", "7", "-o", "raw"))
		b.ok("delete", name, "b")
		b.ok("delete", name, "f")
		b.want("KEY  VALUE\na    1\nc    3\nd1   4\nd2   5\ne    6\n", "scan", name)
		b.want("e\t6\nd2\t5\n", "scan", name, "--reverse", "--limit", "2", "-o", "tsv")
		b.want("{\"key\":\"d1\"}\n{\"key\":\"d2\"}\n", "scan", name, "--prefix", "d", "--keys-only",
			"-o", "json")
		b.want("c\t3\nd1\t4\nd2\t5\n", "scan", name, "--from", "b", "--to", "e", "-o", "raw")
		b.want("a\nb\nc\nd1\nd2\ne\nf\n", "scan", name, "--at", before, "--keys-only", "-o", "tsv")
		b.want("5\n", "count", name, "-o", "raw")
		b.want("7\n", "count", name, "-o", "raw", "--at", before)
		b.want("2\n", "count", name, "-o", "raw", "--prefix", "d")
		b.want("COUNT\n    3\n", "count", name, "--from", "b", "--to", "e")
	}
}

// Any bytes go through load and dump and come out as they were, in both formats and from one kind
// of keyspace to the other.
func TestLoadAndDumpReproduceEachOther(t *testing.T) {
	b := cluster(t)
	for _, name := range []string{"dump-a", "dump-c"} {
		b.ok("keyspace", "create", name, "--partitions", "hash:5")
	}
	b.ok("keyspace", "create", "dump-b", "--partitions", "range", "--split-at", "@",
		"--split-at", "gIA=")
	random := rand.New(rand.NewPCG(1, 2))
	field := func(least, most int) []byte {
		bytes := make([]byte, least+random.IntN(most))
		for i := range bytes {
			bytes[i] = byte(random.Uint32())
		}
		return bytes
	}
	want := make(map[string]string)
	var file strings.Builder
	for range 5000 {
		key, value := field(1, 12), field(0, 60)
		want[string(key)] = string(value)
		fmt.Fprintf(&file, "{\"key_base64\":%q,\"value_base64\":%q}\n",
			base64.StdEncoding.EncodeToString(key), base64.StdEncoding.EncodeToString(value))
	}
	dir := t.TempDir()
	save := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	if got := b.ok("load", "dump-a", save("records.jsonl", file.String())); !strings.HasPrefix(got,
		"5000 records written") {
		t.Errorf("load said %q", got)
	}
	tsv := b.ok("dump", "dump-a")
	if lines := strings.Count(tsv, "\n"); lines != len(want) {
		t.Fatalf("the dump has %d lines for %d keys", lines, len(want))
	}
	b.ok("load", "dump-b", save("dump.tsv", tsv))
	jsonl := b.ok("dump", "dump-b", "--format", "jsonl")
	b.run(jsonl, exit.OK, "load", "dump-c", "-", "--format", "jsonl")
	if again := b.ok("dump", "dump-c"); again != tsv {
		t.Error("after three keyspaces and two formats the dump differs")
	}
	if scanned := b.ok("scan", "dump-c", "-o", "tsv"); scanned != tsv {
		t.Error("scan prints other bytes than dump")
	}
	if scanned := b.ok("scan", "dump-b", "-o", "json"); scanned != jsonl {
		t.Error("scan prints other JSON than dump")
	}
}

func TestAMalformedFileIsRefusedBeforeTheFirstWrite(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "bad-file", "--partitions", "hash:2")
	file := filepath.Join(t.TempDir(), "bad.tsv")
	if err := os.WriteFile(file, []byte("a\t1\nb\t2\nthree\nd\t4\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b.fails(exit.Failed, "bad.tsv (as tsv): after 2 good records: line 3: there is no tab "+
		"between key and value; nothing was written", "load", "bad-file", file)
	b.want("0\n", "count", "bad-file", "-o", "raw")
	got := b.run("a\t1\nb\t2\nthree\nd\t4\n", exit.Failed, "load", "bad-file")
	if want := "stdin (as tsv): line 3: there is no tab between key and value; the 2 records " +
		"before it were written"; !strings.Contains(got.err, want) {
		t.Errorf("said %q, want %q in it", got.err, want)
	}
	b.want("2\n", "count", "bad-file", "-o", "raw")
	b.fails(exit.NotFound, "no-such-keyspace", "load", "no-such-keyspace", os.DevNull)
}

func TestBenchVerbs(t *testing.T) {
	b := cluster(t)
	common := []string{"--duration", "300ms", "--warm-up", "0s", "--records", "500", "--clients",
		"4", "--partitions", "hash:2"}
	for _, args := range [][]string{{"put"}, {"get"}, {"scan", "--rows", "10"},
		{"ycsb", "--workload", "f"}} {
		out := b.ok(append(append([]string{"bench"}, args...), append(common, "-o", "json")...)...)
		if !strings.Contains(out, `"count":`) || !strings.Contains(out, `"errors": 0`) {
			t.Errorf("bench %v: %s", args, out)
		}
	}
	for _, args := range [][]string{
		{"txn", "--keys-per-txn", "3", "--partitions-per-txn", "2", "--contention", "0.9",
			"--records", "500"}, {"txn", "--writes", "0", "--records", "500"},
		{"bank", "--accounts", "10", "--commit-wait"}, {"counters", "--counters", "2"},
	} {
		out := b.ok(append(append([]string{"bench"}, args...), "--duration", "300ms", "--warm-up",
			"0s", "--clients", "4", "-o", "json")...)
		if !strings.Contains(out, `"restart_share"`) || !strings.Contains(out, `"errors": 0`) {
			t.Errorf("bench %v: %s", args, out)
		}
	}
	b.fails(exit.NotFound, "no-such-keyspace",
		append([]string{"bench", "put", "--keyspace", "no-such-keyspace"}, common...)...)
	b.ok("keyspace", "create", "bench-empty", "--partitions", "hash:2")
	got := b.run("", exit.Failed,
		append([]string{"bench", "get", "--skip-load", "--keyspace", "bench-empty"}, common...)...)
	if !strings.Contains(got.err, "failed and none succeeded") ||
		!strings.Contains(got.out, "not found") {
		t.Errorf("a benchmark that fails: %+v", got)
	}
}

// What does not fit the keyspace is an error of the command line: nothing is made or written.
func TestBenchOfTransactionsThatDoNotFit(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "bench-narrow", "--partitions", "hash:8")
	before := b.ok("keyspace", "list")
	for _, c := range []struct{ args, words string }{
		{"--keyspace bench-narrow --keys-per-txn 9 --partitions-per-txn 9",
			`--partitions-per-txn 9: it is at most the number of partitions of ` +
				`keyspace "bench-narrow", 8`},
		{"--keyspace bench-narrow --keys-per-txn 8 --partitions-per-txn 8 --records 8",
			"--partitions-per-txn 8: it is at most the number of partitions in which the 8 records lie,"},
		{"--keyspace bench-narrow --keys-per-txn 99 --partitions-per-txn 1 --records 100",
			"--records 100: too few: a transaction has 99 keys in one partition"},
		{"--partitions hash:2 --keys-per-txn 20000 --partitions-per-txn 17000",
			`--partitions-per-txn 17000: it is at most the number of partitions of keyspace "bench", `},
	} {
		b.fails(exit.Usage, c.words, append([]string{"bench", "txn"}, strings.Fields(c.args)...)...)
	}
	b.want("0\n", "count", "bench-narrow", "-o", "raw")
	b.want(before, "keyspace", "list")
}

func TestWaitingForNodesThatDoNotCome(t *testing.T) {
	b := cluster(t)
	got := command(t, "", b.environment, "status", "--wait", "--nodes", "4", "--timeout", "500ms")
	if got.code != exit.Unavailable ||
		!strings.Contains(got.err, "not ready after 500ms: the cluster has 3 of 4 nodes") {
		t.Errorf("%+v", got)
	}
}

// A wait that is interrupted says so, and not that its time was over.
func TestAnInterruptedWait(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	a := &app{streams: streams{getenv: func(string) string { return "" }},
		endpoints: []string{"127.0.0.1:1"}, timeout: time.Minute}
	cancel()
	err := a.waitReady(ctx, 3)
	if err == nil || !strings.Contains(err.Error(), "status: interrupted") ||
		exit.Code(ctx, err) != exit.Interrupted {
		t.Errorf("%v", err)
	}
}

// Where no server answers, the error names the address and comes soon.
func TestNobodyThere(t *testing.T) {
	got := command(t, "", nil, "get", "fruit", "apple", "--endpoints", "127.0.0.1:1",
		"--timeout", "5s")
	if got.code != exit.Unavailable || !strings.Contains(got.err, "127.0.0.1:1") {
		t.Errorf("%+v", got)
	}
}

// load --presplit loads a file in any order, and a pipe; repeats write nothing, and a bad line is
// named before anything is written.
func TestLoadPresplit(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "presplit", "--partitions", "range", "--split-size", "1MiB")
	var file, sorted strings.Builder
	value := strings.Repeat("v", 500)
	const n = 4000
	for i := range n {
		fmt.Fprintf(&file, "k%05d\t%s%d\n", i*7919%n, value, i*7919%n)
		fmt.Fprintf(&sorted, "k%05d\t%s%d\n", i, value, i)
	}
	file.WriteString("k00001\tlater\n")
	path := filepath.Join(t.TempDir(), "records.tsv")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	got := b.run("", exit.OK, "load", "presplit", path, "--presplit")
	if !strings.HasPrefix(got.out, "4001 records loaded") || !strings.Contains(got.out,
		"4000 written, 0 there already, 1 replaced") || !strings.Contains(got.err, "split off before") {
		t.Errorf("said %q, %q", got.out, got.err)
	}
	want := strings.Replace(sorted.String(), "k00001\t"+value+"1\n", "k00001\tlater\n", 1)
	if dumped := b.ok("dump", "presplit"); dumped != want {
		t.Errorf("the dump has %d bytes, want %d", len(dumped), len(want))
	}
	again := b.run(sorted.String(), exit.OK, "load", "presplit", "--presplit", "-q", "-o", "json")
	if !strings.Contains(again.out, `"written":1`) || !strings.Contains(again.out, `"present":3999`) {
		t.Errorf("again it said %q", again.out)
	}
	bad := b.run("a\t1\nb\t2\nthree\n", exit.Failed, "load", "presplit", "--presplit", "-q")
	reason := "line 3: there is no tab between key and value; nothing was written"
	if !strings.Contains(bad.err, reason) {
		t.Errorf("said %q, want %q in it", bad.err, reason)
	}
	b.want("4000\n", "count", "presplit", "-o", "raw")
}
