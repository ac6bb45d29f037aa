package main

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
	"github.com/tidemarkdb/tidemark/deploy/embedded"
)

// The doctor looks at every area, says what to do about each finding, and has an exit code.
func TestDoctor(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "examined", "--partitions", "hash:1")
	b.ok("put", "examined", "key", "value") // once its partition is led
	// The findings depend on other tests, and on the load of the machine.
	codes := map[string]int{"ok": exit.OK, "advice": exit.OK, "warning": exit.Degraded,
		"bad": exit.Partly}
	examine := func(args ...string) result {
		return command(t, "", b.environment, append([]string{"doctor"}, args...)...)
	}
	got := examine()
	for _, area := range []string{"service", "servers", "disks", "processors", "memory", "open files",
		"clocks", "network", "versions", "certificates", "settings", "replication", "placement",
		"backups"} {
		if !strings.Contains(got.out, " "+area+" ") {
			t.Errorf("nothing is said of %s", area)
		}
	}
	code := 0
	got = examine("-o", "json")
	for line := range strings.Lines(got.out) {
		var row struct {
			Check, Level, Finding, Do string
			Subjects                  []string
		}
		if err := json.Unmarshal([]byte(line), &row); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		code = max(code, codes[row.Level])
		switch {
		case row.Finding == "", row.Level != "ok" && row.Do == "":
			t.Errorf("a row says nothing, or not what to do: %+v", row)
		case row.Level == "bad" && row.Check != "disks" && row.Check != "service":
			t.Errorf("something is bad: %+v", row)
		case row.Check == "network" && row.Level == "ok" &&
			!strings.HasPrefix(row.Finding, "6 links, round trips of "):
			t.Errorf("the links between three servers: %+v", row)
		}
	}
	if got.code != code {
		t.Errorf("exit code %d, and %d after these findings:\n%s", got.code, code, got.out)
	}
}

// A report for others has all that is needed, and no key, value or secret.
func TestDebugZip(t *testing.T) {
	b := cluster(t)
	const key, value, bound = "unspeakable key", "unspeakable value", "unspeakable bound"
	b.ok("keyspace", "create", "zipped", "--partitions", "range", "--split-at", "aa"+bound)
	b.ok("put", "zipped", key, value)
	b.ok("split", "zipped", "--at", "zz"+bound)
	b.ok("coord", "put", "coord "+key, "coord "+value)
	name := filepath.Join(t.TempDir(), "report.zip")
	got := b.run("", exit.OK, "debug", "zip", "--profile", "4s", "-o", "tsv", name)
	if got.out != name+"\t3\t0\n" || !strings.Contains(got.err, "server 3 of 3") {
		t.Errorf("it said %q, and %q", got.out, got.err)
	}
	kinds := zipContent(t, name)
	servers := kinds["examination.json"]
	for _, each := range []string{"metrics.txt", "goroutines.txt", "heap.pprof", "log.txt"} {
		if kinds[each] != servers || servers < 3 {
			t.Errorf("%d servers, and %d have %s", servers, kinds[each], each)
		}
	}
	for _, file := range []string{"README.txt", "doctor.json", "partitions.json", "events.json",
		"errors.txt"} {
		if kinds[file] != 1 {
			t.Errorf("there are %d of %s", kinds[file], file)
		}
	}
	if kinds["processor.pprof"] != servers {
		t.Errorf("the processor time of %d servers was measured", kinds["processor.pprof"])
	}
	b.fails(exit.Usage, "exists: give another name", "debug", "zip", name)
	b.fails(exit.Usage, "--profile is whole seconds", "debug", "zip", "--profile", "31s", name+"2")
}

// zipContent counts the files of a zip by their last names. No file may contain what is unspeakable.
func zipContent(t *testing.T, name string) (kinds map[string]int) {
	t.Helper()
	r, err := zip.OpenReader(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	hidden := [][]byte{[]byte("unspeakable"), []byte(hex.EncodeToString([]byte("unspeakable")))}
	for skip := range 3 { // base64 has three forms, by where the text begins
		text := base64.StdEncoding.EncodeToString([]byte("abc"[:skip] + "unspeakable"))
		hidden = append(hidden, []byte(text[4:12]))
	}
	kinds = map[string]int{}
	for _, f := range r.File {
		in, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		in.Close()
		for _, h := range hidden {
			if bytes.Contains(content, h) {
				i := bytes.Index(content, h)
				t.Errorf("%s contains %q: %s", f.Name, h, content[max(0, i-200):min(len(content), i+50)])
			}
		}
		if len(content) == 0 && f.Name != "errors.txt" {
			t.Errorf("%s is empty", f.Name)
		}
		kinds[filepath.Base(f.Name)]++
	}
	return kinds
}

// Keys that the audit of coordination and of administration logs are not in a report.
func TestDebugZipWithUsers(t *testing.T) {
	b, as := clusterWithUsers(t)
	// The prefix is read without permission.
	b.run("", exit.Failed, as("u", "coord", "get", "unspeakable key", "--prefix")...)
	name := filepath.Join(t.TempDir(), "report.zip")
	b.run("", exit.OK, as("root", "debug", "zip", "--profile", "0", name)...)
	if kinds := zipContent(t, name); kinds["log.txt"] != 2 {
		t.Errorf("the files are %v", kinds)
	}
}

// Who may not have servers examined is told so, and hears nothing of servers that are down.
func TestDoctorNeedsRoot(t *testing.T) {
	b, as := clusterWithUsers(t)
	name := filepath.Join(t.TempDir(), "report.zip")
	for _, args := range [][]string{{"doctor"}, {"debug", "zip", "--profile", "0", name}} {
		for words, given := range map[string][]string{"permission denied": as("u", args...),
			"give --user": args} {
			got := b.run("", exit.Failed, given...)
			if !strings.Contains(got.err, words) || !strings.Contains(got.err, "the role root") ||
				got.out != "" {
				t.Errorf("%q printed %q and said %q", given, got.out, got.err)
			}
		}
		if _, err := os.Stat(name); err == nil {
			t.Errorf("there is a file %s", name)
		}
	}
}

// clusterWithUsers starts two servers, one of them a member of the core, with the users root and u.
// as adds a user to a command.
func clusterWithUsers(t *testing.T) (b shared, as func(user string, args ...string) []string) {
	t.Helper()
	cluster, err := embedded.StartCluster(t.Context(), embedded.ClusterConfig{Dir: t.TempDir(),
		Nodes: 2, Cores: 1, Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	b = shared{t, map[string]string{endpointsEnv: cluster.Endpoints()[0]}}
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, user := range []string{"root", "u"} {
		b.ok("auth", "user", "add", user, "--new-password-file", password)
	}
	b.ok("auth", "user", "grant", "root", "root")
	b.ok("auth", "enable")
	return b, func(user string, args ...string) []string {
		return append(args, "--user", user, "--password-file", password)
	}
}
