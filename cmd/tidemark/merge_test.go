package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// listed reads what a command lists as JSON.
func listed[T any](b shared, args ...string) (all []T) {
	b.t.Helper()
	d := json.NewDecoder(strings.NewReader(b.ok(append(args, "-o", "json")...)))
	for {
		var one T
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, one)
	}
}

// A merge is recorded and shown as what it is, and what cannot be is refused.
func TestMergeVerb(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "mg", "--partitions", "range", "--split-at", "g", "--split-at", "p")
	defer b.ok("keyspace", "drop", "mg", "--yes")
	type partition struct {
		ID    uint64
		Asked bool `json:"boundary_asked"`
	}
	all := listed[partition](b, "partitions", "mg")
	if len(all) != 3 {
		t.Fatalf("%+v", all)
	}
	merge := func(id uint64) (m struct {
		Operator, Partition, Right uint64
		Outcome                    string
	}) {
		t.Helper()
		out := b.ok("merge", fmt.Sprint("p", id), "-o", "json")
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			t.Fatalf("%q: %v", out, err)
		}
		return m
	}
	first := merge(all[0].ID)
	if first.Operator == 0 || first.Partition != all[0].ID || first.Right != all[1].ID ||
		first.Outcome != "under way" {
		t.Errorf("%+v", first)
	}
	b.fails(exit.Usage, "no right neighbour", "merge", fmt.Sprint(all[2].ID))
	b.fails(exit.NotFound, "there is no partition 999999", "merge", "999999")
	b.fails(exit.Usage, "is no partition", "merge", "x")
	b.ok("put", "mg", "h", "1")
	b.ok("put", "mg", "q", "2")
	// The first one may be under way still: then it is the one that is waited for.
	for len(listed[partition](b, "partitions", "mg")) > 1 {
		if out := b.ok("merge", fmt.Sprint(all[0].ID), "--wait", "-o", "json"); !strings.Contains(out,
			`"outcome":"merged"`) {
			t.Fatalf("printed %s", out)
		}
	}
	b.want("1", "get", "mg", "h", "-o", "raw")
	b.want("2", "get", "mg", "q", "-o", "raw")
	b.ok("split", "mg", "--at", "s", "--wait")
	if all = listed[partition](b, "partitions", "mg"); len(all) != 2 || !all[1].Asked {
		t.Errorf("%+v", all)
	}
}

// The pause before merges is set and shown.
func TestMergePause(t *testing.T) {
	b := cluster(t)
	defer b.ok("placement", "limits", "--merge-pause", "10m")
	out := b.ok("placement", "limits", "--merge-pause", "90s", "-o", "json")
	if !strings.Contains(out, `"merge_pause":90`) {
		t.Errorf("printed %s", out)
	}
	b.fails(exit.Usage, "at least 1s", "placement", "limits", "--merge-pause", "1ms")
}
