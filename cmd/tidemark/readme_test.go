package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The README's walk-through, word for word, as a reader would paste it: only the addresses, the
// folder of the temporary files and the way to the binary are those of the test, and the benchmark
// is left out.
func TestReadmeWalkThrough(t *testing.T) {
	for _, tool := range []string{"bash", "awk"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(
		filepath.Join(strings.TrimSpace(string(root)), "api", "go1*.txt")); len(files) < 10 {
		t.Skip("this Go installation has no API lists")
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, quickStart, begins := strings.Cut(string(readme), "## Quick start")
	quickStart, _, ends := strings.Cut(quickStart, "### Three servers")
	if !begins || !ends {
		t.Fatal("the README has lost its quick start, or the section on three servers that ends it")
	}
	dir := t.TempDir()
	script := []string{"set -euo pipefail"}
	for _, block := range regexp.MustCompile("(?s)```sh\n(.*?)```").FindAllStringSubmatch(
		quickStart, -1) {
		text := block[1]
		if text == "make demo\n" || strings.HasPrefix(text, "tidemark bench") {
			continue
		}
		text = strings.ReplaceAll(text, "export PATH=$PWD/bin:$PATH", "")
		text = strings.ReplaceAll(text, "/tmp/", dir+"/")
		script = append(script, text)
	}
	b := cluster(t)
	build := exec.Command("go", "build", "-o", filepath.Join(dir, "bin", "tidemark"), ".")
	// Not as make build does it: with the flags of the test itself everything but the linking is
	// done already.
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	bash := exec.Command("bash", "-c", strings.Join(script, "\n"))
	bash.Env = append(os.Environ(), endpointsEnv+"="+b.environment[endpointsEnv],
		"PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH"))
	out, err := bash.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, want := range []string{
		`(?m)^fruit +hash:8 +8 +3 +1h0m0s +no +active`,
		`(?m)^goapi +range +4 +3 `,
		`(?m)^apple +yellow +\d+\.`,
		`(?m)^apple +red +\d+\.`,
		`(?m)^1\d{5} records written in`,
		`(?m)^1\d{5}$`,
		`(?m)^pkg net/http, func AllowQuerySemicolons\(Handler\) Handler +go1.17.txt$`,
		`(?m)^pkg net/http, func TimeoutHandler\(Handler, time.Duration, string\) Handler +go1.txt$`,
		`(?m)^DELETED\n +1\nKEY +VALUE\npkg net/http, func ListenAndServeTLS.*\n` +
			`KEY +VALUE\npkg net/http, func ListenAndServe\(string.*\n` +
			`pkg net/http, func ListenAndServeTLS`,
	} {
		if !regexp.MustCompile(want).Match(out) {
			t.Errorf("the walk-through does not print %s; it printed:\n%s", want, out)
		}
	}
	// What came in goes out, but for the one key that was deleted and the few that were twice in
	// the list.
	loaded, err := os.ReadFile(filepath.Join(dir, "goapi.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	dumped, err := os.ReadFile(filepath.Join(dir, "goapi-dump.tsv"))
	if err != nil {
		t.Fatal(err)
	}
	want := make(map[string]string)
	for line := range strings.Lines(string(loaded)) {
		key, value, _ := strings.Cut(line, "\t")
		want[key] = value
	}
	delete(want, "pkg net/http, func ListenAndServe(string, Handler) error")
	got := 0
	for line := range strings.Lines(string(dumped)) {
		got++
		if key, value, _ := strings.Cut(line, "\t"); want[key] != value {
			t.Fatalf("the dump has %q, which was loaded as %q", line, want[key])
		}
	}
	if got != len(want) {
		t.Errorf("the dump has %d records, %d were loaded", got, len(want))
	}
}

// The README's way to use a clone without a module proxy, word for word; only that it lists the
// packages, and does not compile them.
func TestReadmeModuleWithoutProxy(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)no module proxy.*?```sh\n(.*?)```").FindStringSubmatch(
		string(readme))
	if found == nil || !strings.Contains(found[1], "GOPROXY=off go build\n") {
		t.Fatal("the README does not say any more how a clone is used without a proxy")
	}
	clone, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "app")
	program := "package main\n\nimport _ \"github.com/tidemarkdb/tidemark/kv\"\n\nfunc main() {}\n"
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(clone, filepath.Join(dir, "../tidemark")); err != nil {
		t.Skip(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	script := "set -eu\ngo mod init example.com/app\n" +
		strings.Replace(found[1], "go build", "go list -deps .", 1)
	shell := exec.Command("sh", "-c", script)
	shell.Dir = dir
	shell.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	out, err := shell.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "github.com/tidemarkdb/tidemark/kv\n") {
		t.Errorf("%v\n%s", err, out)
	}
}
