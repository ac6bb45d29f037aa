package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/bench/proof/fleet"
)

func TestJudgeLine(t *testing.T) {
	for _, c := range []struct {
		line   string
		clocks bool
		want   verdict
	}{
		{`time=1 level=INFO msg="the clock agrees with the peers' again; serving"`, false,
			harmless},
		{`time=1 level=WARN msg="a checksum of corrupt things"`, false, harmless},
		{`time=1 level=ERROR msg="ping dropped" peer=a`, false, noticeable},
		{`time=1 level=ERROR msg="THE CLOCK OF THIS SERVER IS WRONG, or"`, true, harmless},
		{`time=1 level=ERROR msg="THE CLOCK OF THIS SERVER IS WRONG, or"`, false, noticeable},
		{`time=1 level=ERROR msg="THE CLOCK OF THIS SERVER HAS JUMPED: nothing"`, true, harmless},
		{`time=1 level=ERROR msg="THE CLOCK OF THIS SERVER HAS JUMPED: nothing"`, false,
			noticeable},
		{`time=1 level=ERROR msg="replica failed" partition=3`, true, broken},
		{`time=1 level=ERROR msg=x error="an INVARIANT does not hold"`, false, broken},
		{`panic: runtime error: index out of range`, false, broken},
		{`tidemark: ready on 198.18.77.1:7500`, false, harmless},
		{``, false, harmless},
	} {
		if got := judgeLine(c.line, c.clocks); got != c.want {
			t.Errorf("%q: %v, want %v", c.line, got, c.want)
		}
	}
}

func TestMessage(t *testing.T) {
	for line, want := range map[string]string{
		`time=1 level=ERROR msg="replica failed" partition=3`: "replica failed",
		`time=1 level=ERROR msg=word peer=3`:                  "word",
		`panic: x`:                                            "panic: x",
	} {
		if got := message(line); got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

func TestLogReaderTakesWholeLinesOnce(t *testing.T) {
	l := &logReader{path: filepath.Join(t.TempDir(), "log")}
	var all []string
	for _, part := range []string{"one\ntw", "o\n", "", "three\nfour\nfi"} {
		file, err := os.OpenFile(l.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(part); err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		lines, err := l.lines()
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range lines {
			if line != "" {
				all = append(all, line)
			}
		}
	}
	if want := []string{"one", "two", "three", "four"}; !slices.Equal(all, want) {
		t.Errorf("%q, want %q", all, want)
	}
}

func TestExceeded(t *testing.T) {
	samples := []fleet.Sample{
		{Name: "go_goroutines", Value: 300},
		{Name: "tidemark_replica_queued_writes", Labels: `part="node"`, Value: 10},
	}
	if err := exceeded(samples); err != nil {
		t.Error(err)
	}
	samples = append(samples, fleet.Sample{Name: "tidemark_host_failed_groups_total",
		Labels: `part="core"`, Value: 1},
		fleet.Sample{Name: "go_goroutines", Value: 6000})
	err := exceeded(samples)
	if err == nil || !strings.Contains(err.Error(), "failed_groups_total is 1") ||
		!strings.Contains(err.Error(), "go_goroutines is 6300") {
		t.Errorf("exceeded: %v", err)
	}
}
