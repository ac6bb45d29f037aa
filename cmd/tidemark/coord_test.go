package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/reference"
	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// theEtcd is shared by the tests of commands of the coordination service; each has keys of its own.
var theEtcd struct {
	sync.Once
	cluster *reference.Cluster
	err     error
}

// service drives the program against a coordination service.
func service(t *testing.T) shared {
	t.Helper()
	theEtcd.Do(func() {
		theEtcd.cluster, theEtcd.err = reference.Start(context.Background(),
			reference.Options{Args: []string{"--unsafe-no-fsync"}})
	})
	if theEtcd.err != nil {
		t.Fatal(theEtcd.err)
	}
	return shared{t, map[string]string{
		endpointsEnv: strings.Join(theEtcd.cluster.Endpoints(), ",")}}
}

// job is a command that runs until it ends, or is interrupted.
type job struct {
	t        *testing.T
	out, err *screen
	stop     context.CancelFunc
	ended    chan int
}

// begin begins a command; it is interrupted when the test ends.
func (b shared) begin(args ...string) *job {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	j := &job{b.t, newScreen(), newScreen(), cancel, make(chan int, 1)}
	go func() {
		j.ended <- run(ctx, args, streams{in: strings.NewReader(""), out: j.out, err: j.err,
			getenv: func(name string) string { return b.environment[name] }})
	}()
	b.t.Cleanup(cancel)
	return j
}

// says waits until a text was printed or said.
func (j *job) says(text string) {
	j.t.Helper()
	limit := time.After(time.Minute)
	for {
		if strings.Contains(j.out.String()+j.err.String(), text) {
			return
		}
		select {
		case <-j.out.changed:
		case <-j.err.changed:
		case <-limit:
			j.t.Fatalf("no %q in\n%s\n%s", text, j.out, j.err)
		}
	}
}

// ends waits until it has ended, and wants its exit code.
func (j *job) ends(code int) {
	j.t.Helper()
	select {
	case got := <-j.ended:
		if got != code {
			j.t.Fatalf("exit code %d, want %d\n%s\n%s", got, code, j.out, j.err)
		}
	case <-time.After(time.Minute):
		j.t.Fatalf("it goes on:\n%s\n%s", j.out, j.err)
	}
}

// rows are the lines of --output json.
func rows(t *testing.T, text string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(text) {
		var row map[string]any
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		all = append(all, row)
	}
	return all
}

func TestCoordKeys(t *testing.T) {
	b := service(t)
	first := rows(t, b.ok("coord", "put", "ck/a", "1", "-o", "json"))[0]["revision"].(float64)
	b.ok("coord", "put", "ck/b", "2")
	b.ok("coord", "put", "ck/c", "--value-file", "/dev/null")
	changed := rows(t, b.ok("coord", "put", "ck/a", "x", "--prev-kv", "-o", "json"))[0]
	if changed["previous_value"] != "1" || changed["previous_revision"] != first {
		t.Errorf("%v", changed)
	}
	b.want("x", "coord", "get", "ck/a", "-o", "raw")
	b.want("1", "coord", "get", "ck/a", "-o", "raw", "--rev", revision(first))
	b.want("x2", "coord", "get", "ck/", "--prefix", "-o", "raw")
	b.want("2", "coord", "get", "ck/b", "ck/c", "-o", "raw")
	b.want("2x", "coord", "get", "ck/", "ck/c", "--reverse", "-o", "raw")
	got := rows(t, b.ok("coord", "get", "ck/", "--prefix", "--limit", "1", "--keys-only",
		"-o", "json"))
	if len(got) != 1 || got[0]["key"] != "ck/a" || got[0]["value"] != nil ||
		got[0]["version"] != 2.0 || got[0]["create_revision"] != first {
		t.Errorf("%v", got)
	}
	if got := b.ok("coord", "get", "ck/", "--prefix", "--count-only"); !strings.Contains(got, "3") {
		t.Errorf("%s", got)
	}
	b.fails(exit.NotFound, "not there", "coord", "get", "ck/x")
	b.want("", "coord", "get", "ck/x", "--prefix", "-o", "raw")
	b.fails(exit.Usage, "--prefix", "coord", "get", "")
	b.fails(exit.Usage, "exclude", "coord", "get", "a", "b", "--prefix")
	b.fails(exit.Usage, "no lease", "coord", "put", "ck/a", "1", "--lease", "x")
	b.fails(exit.NotFound, "lease", "coord", "put", "ck/a", "1", "--lease", "123")
	b.fails(exit.Usage, "future", "coord", "get", "ck/a", "--rev", "1000000")
	got = rows(t, b.ok("coord", "del", "ck/", "ck/c", "--prev-kv", "-o", "json"))
	if len(got) != 2 || got[1]["value"] != "2" {
		t.Errorf("%v", got)
	}
	got = rows(t, b.ok("coord", "del", "ck/", "--prefix", "-o", "json"))
	if got[0]["deleted"] != 1.0 {
		t.Errorf("%v", got)
	}
	down := shared{t, map[string]string{endpointsEnv: "127.0.0.1:1"}}
	if got := command(t, "", down.environment, "coord", "get", "a", "--timeout", "300ms"); got.code !=
		exit.Unavailable || !strings.Contains(got.err, "127.0.0.1:1 does not answer") {
		t.Errorf("%+v", got)
	}
}

// revision is one as an argument.
func revision(number float64) string {
	encoded, _ := json.Marshal(int64(number))
	return string(encoded)
}

func TestCoordWatchAndCompact(t *testing.T) {
	b := service(t)
	first := rows(t, b.ok("coord", "put", "cw/a", "1", "-o", "json"))[0]["revision"].(float64)
	b.ok("coord", "put", "cw/a", "2")
	b.ok("coord", "del", "cw/a")
	got := rows(t, b.ok("coord", "watch", "cw/", "--prefix", "--rev", revision(first), "--limit", "3",
		"--prev-kv", "-o", "json"))
	if len(got) != 3 || got[1]["kind"] != "put" || got[1]["previous_value"] != "1" ||
		got[2]["kind"] != "delete" || got[2]["value"] != nil || got[0]["revision"] != first {
		t.Errorf("%v", got)
	}
	b.want("12", "coord", "watch", "cw/a", "--rev", revision(first), "--limit", "2", "-o", "raw")
	lines := b.ok("coord", "watch", "cw/a", "--rev", revision(first), "--limit", "2", "-o", "tsv",
		"--headers")
	if n := strings.Count(lines, "\n"); n != 3 || !strings.HasPrefix(lines, "revision\tkind\tkey") {
		t.Errorf("%s", lines)
	}
	live := b.begin("coord", "watch", "cw/", "--prefix")
	live.says("watching from revision")
	b.ok("coord", "put", "cw/b", "3")
	live.says("put     cw/b  3\n")
	live.stop()
	live.ends(exit.OK)
	b.ok("coord", "compact", revision(first+1))
	b.fails(exit.Usage, "--rev "+revision(first+1), "coord", "watch", "cw/a",
		"--rev", revision(first))
	b.fails(exit.Usage, "compacted", "coord", "compact", "1")
	b.fails(exit.Usage, "no revision", "coord", "compact", "x")
	b.fails(exit.Usage, "the newest is ", "coord", "compact", "1000000")
}

func TestCoordTxn(t *testing.T) {
	b := service(t)
	script := "version(\"ct/a\") = \"0\"\n\nput ct/a \"a b\\n\"\nput ct/b 2\n\n" +
		"get ct/ --prefix\ndel ct/b\n"
	first := rows(t, b.run(script, exit.OK, "coord", "txn", "-o", "json").out)
	if len(first) != 2 || first[0]["held"] != true || first[0]["operation"] != "put" {
		t.Errorf("%v", first)
	}
	second := rows(t, b.run(script, exit.OK, "coord", "txn", "-o", "json").out)
	if len(second) != 3 || second[0]["held"] != false || second[0]["value"] != "a b\n" ||
		second[2]["deleted"] != 1.0 {
		t.Errorf("%v", second)
	}
	none := rows(t, b.run("mod(ct/a) > 0\nvalue(ct/a) != x\nlease(ct/a) = 0\n", exit.OK,
		"coord", "txn", "-o", "json").out)
	if len(none) != 1 || none[0]["held"] != true || none[0]["operation"] != nil {
		t.Errorf("%v", none)
	}
	for wrong, words := range map[string]string{
		"a = b":               "no comparison",
		"size(a) = 1":         "none of value",
		"version(a) = x":      "no number",
		"\nput a":             "none of put",
		"\nput a \"b":         "not closed",
		"\nget a\n\n\nget":    "fourth part",
		"\nput a b --lease=z": "no lease",
	} {
		if got := b.run(wrong, exit.Usage, "coord", "txn"); !strings.Contains(got.err, words) {
			t.Errorf("%q: %s", wrong, got.err)
		}
	}
}

func TestLease(t *testing.T) {
	b := service(t)
	id, _, _ := strings.Cut(b.ok("lease", "grant", "1m", "-o", "raw"), "\t")
	b.ok("coord", "put", "lk/a", "1", "--lease", id)
	if got := rows(t, b.ok("coord", "get", "lk/a", "-o", "json")); got[0]["lease"] != id {
		t.Errorf("%v; want the lease %s", got, id)
	}
	got := rows(t, b.ok("lease", "keep-alive", id, "--once", "-o", "json"))
	if got[0]["ttl"] != 60.0 {
		t.Errorf("%v", got)
	}
	if got := rows(t, b.ok("lease", "ttl", id, "--keys", "-o", "json")); got[0]["granted"] != 60.0 ||
		got[0]["keys"].([]any)[0] != "lk/a" {
		t.Errorf("%v", got)
	}
	if got := b.ok("lease", "list"); !strings.Contains(got, id) {
		t.Errorf("%s; want the lease %s", got, id)
	}
	renewing := b.begin("lease", "keep-alive", id, "-o", "json")
	renewing.says(`"ttl":60`)
	renewing.stop()
	renewing.ends(exit.OK)
	b.ok("lease", "revoke", id)
	b.fails(exit.NotFound, "not there", "coord", "get", "lk/a")
	for _, args := range [][]string{{"ttl", id}, {"revoke", id}, {"keep-alive", id, "--once"}} {
		b.run("", exit.NotFound, append([]string{"lease"}, args...)...)
	}
	if got := rows(t, b.ok("lease", "grant", "30", "-o", "json")); got[0]["ttl"] != 30.0 {
		t.Errorf("%v", got)
	}
	b.fails(exit.Usage, "whole seconds", "lease", "grant", "1ms")
	b.fails(exit.Usage, "no lease", "lease", "ttl", "zz")
}

// One command runs at a time; its exit code is that of the program, and it knows its number.
func TestLock(t *testing.T) {
	b := service(t)
	needsShell(t)
	file := filepath.Join(t.TempDir(), "go")
	held := b.begin("lock", "l/1", "--", "sh", "-c",
		`echo "number $TIDEMARK_FENCING_NUMBER"; while [ ! -e "$0" ]; do sleep 0.05; done; exit 7`,
		file)
	held.says("holding the lock l/1, fencing number")
	held.says("number ")
	b.fails(exit.Conflict, "somebody has it", "lock", "l/1", "--no-wait", "--", "true")
	b.fails(exit.Conflict, "not free within 2s", "lock", "l/1", "--wait", "2s", "--", "true")
	next := b.begin("lock", "l/1", "--", "sh", "-c", `echo "number $TIDEMARK_FENCING_NUMBER"`)
	next.says("waiting for the lock l/1")
	b.ok("lock", "l/2", "--", "touch", file)
	held.ends(7)
	next.ends(exit.OK)
	if one, two := fencingNumber(t, held), fencingNumber(t, next); one >= two {
		t.Errorf("number %d, then %d", one, two)
	}
	reader := b.begin("lock", "l/3", "--read", "--", "sleep", "100")
	reader.says("holding")
	b.ok("lock", "l/3", "--read", "--", "true")
	b.fails(exit.Conflict, "somebody", "lock", "l/3", "--write", "--no-wait", "--", "true")
	reader.stop()
	reader.ends(exit.Interrupted)
	b.ok("lock", "l/3", "--write", "--no-wait", "--", "true")
	for _, args := range [][]string{{"l/4"}, {"l/4", "true"}, {"--", "true"}, {"l/4", "--"}} {
		got := command(t, "", b.environment, append([]string{"lock"}, args...)...)
		if got.code != exit.Usage {
			t.Errorf("%q: %+v", args, got)
		}
	}
	for _, refused := range [][]string{{"--kill-after", "5s"}, {"--kill-after", "1s", "--ttl", "3s"},
		{"--kill-after", "-1s"}} {
		b.fails(exit.Usage, "--kill-after", append(append([]string{"lock", "l/4"}, refused...), "--",
			"true")...)
	}
	b.ok("lock", "l/4", "--ttl", "3s", "--", "true")
	b.fails(exit.Usage, "no-such-program", "lock", "l/4", "--", "no-such-program")
	b.run("", 128+9, "lock", "l/4", "--", "sh", "-c", "kill -9 $$")
}

// fencingNumber is the number that a command has printed.
func fencingNumber(t *testing.T, j *job) int {
	t.Helper()
	found := regexp.MustCompile(`number (\d+)`).FindStringSubmatch(j.out.String())
	if found == nil {
		t.Fatalf("no number in %q", j.out)
	}
	n, err := strconv.Atoi(found[1])
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func needsShell(t *testing.T) {
	t.Helper()
	for _, program := range []string{"sh", "sleep", "true", "touch"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed", program)
		}
	}
}

// When the lock is lost the command is ended, also one that does not want to.
func TestLockIsLost(t *testing.T) {
	b := service(t)
	needsShell(t)
	for _, script := range []string{"echo started; exec sleep 100",
		"trap '' TERM; echo started; while :; do sleep 0.1; done"} {
		held := b.begin("lock", "lost", "--kill-after", "300ms", "--", "sh", "-c", script)
		held.says("started")
		b.ok("coord", "del", "coord/lock/lost/", "--prefix")
		held.ends(exit.Failed)
		held.says("was deleted by somebody else; the command was ended")
	}
}

func TestElect(t *testing.T) {
	b := service(t)
	needsShell(t)
	watching := b.begin("elect", "e", "--observe", "-o", "tsv", "--headers")
	watching.says("watching the election e")
	watching.says("leader\t")
	first := b.begin("elect", "e", "10.0.0.7:80", "-o", "json")
	first.says(`"leader":"10.0.0.7:80"`)
	second := b.begin("elect", "e", "10.0.0.8:80", "--", "sh", "-c", "echo mine; exit 3")
	second.says("campaigning in the election e")
	first.stop()
	first.ends(exit.OK)
	second.says("mine")
	second.ends(3)
	watching.says("10.0.0.7:80\t")
	watching.says("10.0.0.8:80\t")
	watching.stop()
	watching.ends(exit.OK)
	third := b.begin("elect", "e", "x")
	third.says("leading")
	b.ok("coord", "del", "coord/election/e/", "--prefix")
	third.ends(exit.Failed)
	if got := command(t, "", b.environment, "elect", "e"); got.code != exit.Usage {
		t.Errorf("%+v", got)
	}
}

func TestTimer(t *testing.T) {
	b := service(t)
	needsShell(t)
	got := b.ok("timer", "t", "200ms", "--count", "3", "--", "sh", "-c",
		`echo "$TIDEMARK_TIMER_DUE $TIDEMARK_TIMER_MISSED $TIDEMARK_FENCING_NUMBER"; exit 1`)
	var last time.Time
	for line := range strings.Lines(got) {
		due, _, _ := strings.Cut(line, " ")
		at, err := time.Parse(time.RFC3339Nano, due)
		if err != nil || !at.Equal(at.Truncate(200*time.Millisecond)) ||
			!at.After(last) {
			t.Errorf("%q after %s: %v", line, last, err)
		}
		last = at
	}
	if strings.Count(got, "\n") != 3 {
		t.Errorf("%s", got)
	}
	waiting := b.begin("timer", "t", "24h", "--missed", "each", "--", "true")
	waiting.says("waiting for the periods of t, every 24h0m0s")
	waiting.stop()
	waiting.ends(exit.OK)
	b.fails(exit.Usage, "no period", "timer", "t", "often", "--", "true")
	b.fails(exit.Usage, "100ms or more", "timer", "t", "1ms", "--", "true")
	b.fails(exit.Usage, "skip, once or each", "timer", "t", "1m", "--missed", "x", "--", "true")
	b.fails(exit.Usage, "1 or more", "timer", "t", "1m", "--catch-up", "0", "--", "true")
}
