package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/rpc/porttest"
)

// documented are the commands of a section of docs/operations.md that begin with a prefix.
func documented(t *testing.T, section, prefix string) (commands []string) {
	t.Helper()
	text, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(text), "\n## "+section+"\n")
	if !found {
		t.Fatalf("there is no section %q", section)
	}
	rest, _, _ = strings.Cut(rest, "\n## ")
	for _, line := range strings.Split(rest, "\n") {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, prefix) {
			commands = append(commands, line)
		}
	}
	return commands
}

// TestTheProcedureWhenAMajorityIsLost carries out what the manual says, word for word.
func TestTheProcedureWhenAMajorityIsLost(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for leases of real servers")
	}
	steps := documented(t, "When a majority is lost", "tidemark recover ")
	if len(steps) != 6 {
		t.Fatalf("the manual has the steps %q", steps)
	}
	dir := t.TempDir()
	core := porttest.Address(t)
	environment := map[string]string{endpointsEnv: core}
	ok := func(args ...string) string {
		t.Helper()
		got := command(t, "", environment, args...)
		if got.code != exit.OK {
			t.Fatalf("%q: %+v", args, got)
		}
		return got.out + got.err
	}
	starts := map[int][]string{}
	servers := map[int]*server{}
	begin := func(n int) {
		t.Helper()
		if starts[n] == nil {
			address := core
			if n > 1 {
				address = porttest.Address(t)
			}
			starts[n] = []string{"start", "--dir", filepath.Join(dir, fmt.Sprint("server-", n)),
				"--listen", address, "--core", core}
		}
		servers[n] = serve(t, starts[n]...)
	}
	start := func(n int) {
		t.Helper()
		begin(n)
		servers[n].says(`^tidemark: ready on `)
	}
	for n := 1; n <= 4; n++ { // one after the other, so that they are nodes 1 to 4
		start(n)
	}
	ok("keyspace", "create", "fruit", "--partitions", "hash:8", "--timeout", "60s")
	for i := range 50 {
		ok("put", "fruit", fmt.Sprint("k", i), fmt.Sprint("v", i), "--timeout", "60s")
	}
	for n := range servers {
		servers[n].end()
	}

	// do carries out a step of the manual for a server.
	do := func(step string, n int) string {
		t.Helper()
		step = strings.ReplaceAll(step, "/var/lib/tidemark",
			filepath.Join(dir, fmt.Sprint("server-", n)))
		args := strings.Fields(step)[1:]
		if args[1] == "survey" {
			args[len(args)-1] = fmt.Sprintf("node-%d.json", n)
		}
		for i := range args {
			if strings.HasSuffix(args[i], ".json") {
				args[i] = filepath.Join(dir, args[i])
			}
		}
		return ok(args...)
	}
	do(steps[0], 1)
	do(steps[0], 2)
	// The core has its only member.
	args := strings.Fields(strings.ReplaceAll(steps[4], "/var/lib/tidemark",
		filepath.Join(dir, "server-1")))
	if got := command(t, "", nil, args[1:]...); got.code == exit.OK ||
		!strings.Contains(got.err, "decides alone") {
		t.Errorf("%s: %+v", steps[4], got)
	}
	if got := command(t, "", nil, "recover", "plan", "--lost", "3", "--to", filepath.Join(dir, "x"),
		filepath.Join(dir, "node-1.json"), filepath.Join(dir, "node-2.json")); got.code == exit.OK ||
		!strings.Contains(got.err, "nodes [4] are not lost") {
		t.Errorf("a plan without node 4: %+v", got)
	}
	shown := do(steps[1], 0)
	for _, want := range []string{"may be missing",
		"Keep their machines and directories switched off", "Nothing was changed yet"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the plan does not say %q: %s", want, shown)
		}
	}
	for _, n := range []int{1, 2} {
		if out := do(steps[2], n); !strings.Contains(out, "done") {
			t.Errorf("apply: %s", out)
		}
		if out := do(steps[2], n); !strings.Contains(out, "was done before") {
			t.Errorf("apply, once more: %s", out)
		}
	}
	begin(1) // each waits for the other's clock
	start(2)
	servers[1].says(`^tidemark: ready on `)
	if !strings.Contains(servers[1].err.String(), "THIS DIRECTORY WAS RECOVERED") {
		t.Errorf("the log says nothing of it: %s", servers[1].err)
	}
	waiting := regexp.MustCompile(`(?m)^\s*(\d+)\s+0\s+0\s*$`)
	got := command(t, "", environment, "recover", "confirm", filepath.Join(dir, "plan.json"), "--wait",
		"--timeout", "60s")
	if got.code != exit.OK || !waiting.MatchString(got.out) {
		t.Fatalf("the recovery is not confirmed: %+v", got)
	}
	for i := range 50 {
		got := ok("get", "fruit", fmt.Sprint("k", i), "--timeout", "60s")
		if !strings.Contains(got, fmt.Sprint("v", i)) {
			t.Errorf("k%d: %s", i, got)
		}
	}
	ok("put", "fruit", "after", "wards", "--timeout", "60s")
	for _, n := range []int{5, 6} {
		start(n)
	}
	limit := time.Now().Add(2 * time.Minute)
	for {
		all := ok("partitions", "fruit", "-o", "json")
		if three := regexp.MustCompile(`"replicas":\[[\d,]*\]`).FindAllString(all, -1); whole(three) {
			break
		}
		if time.Now().After(limit) {
			t.Fatalf("the replicas are not added again: %s", all)
		}
		time.Sleep(200 * time.Millisecond) // the condition is asked again
	}
}

// whole says whether all of eight partitions have three replicas, and none on nodes 3 and 4.
func whole(replicas []string) bool {
	if len(replicas) != 8 {
		return false
	}
	for _, r := range replicas {
		nodes := regexp.MustCompile(`\d+`).FindAllString(r, -1)
		if len(nodes) != 3 || strings.Contains(r, "3") || strings.Contains(r, "4") {
			return false
		}
	}
	return true
}
