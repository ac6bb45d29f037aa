package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// A split is recorded and shown as what it is; a boundary that there is is said to be one, and what
// cannot be is refused.
func TestSplitVerb(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "sp", "--partitions", "range", "--split-at", "g")
	defer b.ok("keyspace", "drop", "sp", "--yes")
	split := func(args ...string) (s struct {
		Operator, Partition, Child uint64
		Outcome                    string
	}) {
		t.Helper()
		out := b.ok(append([]string{"split", "sp", "-o", "json", "--at"}, args...)...)
		if err := json.Unmarshal([]byte(out), &s); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return s
	}
	if s := split("g", "--wait"); s.Operator != 0 || s.Child != s.Partition+1 ||
		s.Outcome != "is a boundary already" {
		t.Errorf("at a boundary: %+v", s)
	}
	first := split("6d", "--hex")
	if first.Operator == 0 || first.Child <= first.Partition || first.Outcome != "under way" {
		t.Errorf("%+v", first)
	}
	if again := split("m"); again.Partition != first.Partition || again.Child != first.Child {
		t.Errorf("%+v, and again %+v", first, again)
	}
	split("m", "--wait")
	if s := split("p", "--wait"); s.Operator == 0 || s.Outcome != "split" {
		t.Errorf("with --wait: %+v", s)
	}
	b.fails(exit.Usage, "--at", "split", "sp")
	b.fails(exit.Usage, "hex", "split", "sp", "--at", "x", "--hex")
	b.fails(exit.NotFound, "no keyspace", "split", "sp-none", "--at", "m")
}

// The sizes of partitions are set, shown and checked.
func TestSizesOfPartitions(t *testing.T) {
	b := cluster(t)
	shows := func(command []string, want ...string) {
		t.Helper()
		out := b.ok(append(command, "-o", "json")...)
		for _, part := range want {
			if !strings.Contains(out, part) {
				t.Errorf("%q printed %s, want %s in it", command, out, part)
			}
		}
	}
	create := []string{"keyspace", "create", "sizes", "--partitions", "hash:2",
		"--split-size", "64MiB", "--no-auto"}
	shows(create, `"split_size":67108864`, `"merge_size":16777216`, `"auto_split":false`)
	defer b.ok("keyspace", "drop", "sizes", "--yes")
	shows(append(create, "--if-missing"), `"split_size":67108864`)
	b.fails(exit.Usage, "split size", "keyspace", "create", "sizes", "--partitions", "hash:2",
		"--split-size", "32MiB", "--if-missing")
	shows([]string{"keyspace", "alter", "sizes", "--merge-size", "4MiB", "--no-auto=false"},
		`"split_size":67108864`, `"merge_size":4194304`, `"auto_split":true`)
	shows([]string{"keyspace", "alter", "sizes", "--merge-size", "0", "--split-size", "0"},
		`"split_size":268435456`, `"merge_size":67108864`)
	shows([]string{"keyspace", "alter", "sizes", "--gc-window", "90m"}, `"gc_window":5400`)
	b.fails(exit.Usage, "whole seconds", "keyspace", "alter", "sizes", "--gc-window", "1500ms")
	b.fails(exit.Usage, "at least one", "keyspace", "alter", "sizes", "--gc-window", "0s")
	b.fails(exit.Usage, "at least 1048576", "keyspace", "alter", "sizes", "--split-size", "1000")
	b.fails(exit.Usage, "at most half", "keyspace", "alter", "sizes", "--merge-size", "129MiB")
	b.fails(exit.Usage, "at most half", "keyspace", "create", "sizes-no", "--merge-size", "129MiB",
		"--partitions", "range")
	b.fails(exit.Usage, "write it as", "keyspace", "alter", "sizes", "--split-size", "big")
	shows([]string{"keyspace", "list"}, `"split_size":268435456`)
}
