package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// Reads that any replica may answer say what moment they have read. A bound that only leaders can
// keep makes them certain.
func TestReadsAtReplicas(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "fresh", "--partitions", "hash:3")
	b.ok("put", "fresh", "apple", "green")
	b.ok("put", "fresh", "pear", "yellow")
	for _, args := range [][]string{{"get", "fresh", "apple"}, {"get", "fresh", "apple", "pear"},
		{"count", "fresh"}} {
		plain := make(map[string]any)
		line, _, _ := strings.Cut(b.ok(append(args, "--output", "json")...), "\n")
		if err := json.Unmarshal([]byte(line), &plain); err != nil {
			t.Fatal(err)
		}
		if _, told := plain["read_at"]; told {
			t.Errorf("%q tells without being asked: %v", args, plain)
		}
		got := make(map[string]any)
		line, _, _ = strings.Cut(b.ok(append(args, "--staleness", "100ms", "--output", "json")...),
			"\n")
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		age, known := got["age"].(float64)
		if at, ok := got["read_at"].(string); !ok || at == "" || !known || age < 0 || age > 60 {
			t.Errorf("%q tells %v", args, got)
		}
		for name, value := range plain {
			if got[name] != value {
				t.Errorf("%q: %s is %v, and without --staleness %v", args, name, got[name], value)
			}
		}
	}
	got := b.run("", exit.OK, "scan", "fresh", "--staleness", "100ms", "--output", "tsv")
	if got.out != b.ok("scan", "fresh", "--output", "tsv") || !strings.Contains(got.err, "read at ") {
		t.Errorf("%+v", got)
	}
	for _, flag := range []string{"--nearest", "--any-staleness", "--linearizable-follower"} {
		b.ok("count", "fresh", flag)
		b.ok("scan", "fresh", flag, "--locality", "region=eu,zone=a")
	}
	b.fails(exit.Usage, "above 0", "get", "fresh", "apple", "--staleness", "0s")
	b.fails(exit.Usage, "exclude each other", "get", "fresh", "apple", "--staleness", "1s",
		"--at", "-5s")
	b.fails(exit.Usage, "exclude each other", "scan", "fresh", "--nearest",
		"--linearizable-follower")
	b.fails(exit.Usage, "region and zone", "get", "fresh", "apple",
		"--nearest", "--locality", "rack=1")
}

func TestLatencies(t *testing.T) {
	b := cluster(t)
	lines := strings.Split(strings.TrimSpace(b.ok("partitions", "--latency", "--output", "json")),
		"\n")
	if len(lines) != 3 {
		t.Fatal(lines)
	}
	for i, line := range lines {
		var node struct {
			Node    int
			Latency float64
			Problem *string
		}
		if err := json.Unmarshal([]byte(line), &node); err != nil {
			t.Fatal(err)
		}
		if node.Node != i+1 || node.Latency <= 0 || node.Problem != nil {
			t.Error(line)
		}
	}
	b.fails(exit.Usage, "leave out", "partitions", "fruit", "--latency")
}
