package main

import (
	"archive/zip"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
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
	got := b.run("", exit.OK, "debug", "zip", "--profile", "1s", "-o", "tsv", name)
	if got.out != name+"\t3\t0\n" || !strings.Contains(got.err, "server 3 of 3") {
		t.Errorf("it said %q, and %q", got.out, got.err)
	}
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
	kinds := map[string]int{}
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
	if !slices.ContainsFunc(r.File, func(f *zip.File) bool {
		return strings.HasSuffix(f.Name, "processor.pprof")
	}) {
		t.Error("the processor time was not measured")
	}
	b.fails(exit.Usage, "exists: give another name", "debug", "zip", name)
	b.fails(exit.Usage, "--profile is whole seconds", "debug", "zip", "--profile", "31s", name+"2")
}
