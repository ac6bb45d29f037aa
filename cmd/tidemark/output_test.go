package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// Every command that does something has --output, but for those whose output is that of the command
// that they run.
func TestEveryCommandHasOutput(t *testing.T) {
	runs := map[string]bool{"tidemark lock": true, "tidemark timer": true}
	var look func(cmd *cobra.Command)
	look = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			look(sub)
		}
		if cmd.Name() == "help" || cmd.Name() == "exit-codes" || cmd.HasSubCommands() ||
			runs[cmd.CommandPath()] {
			return
		}
		if cmd.Flags().Lookup("output") == nil {
			t.Errorf("%s has no --output", cmd.CommandPath())
		}
	}
	look((&app{}).root())
}

// In JSON what is a number is one, and a table of the cluster's state is no wider than 100 columns.
func TestListsForProgramsAndPeople(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "lists", "--partitions", "range", "--split-at",
		strings.Repeat("g", 80), "--split-at", strings.Repeat("p", 80))
	var partition struct {
		Replicas, Learners []uint64
		ID, Leader, Keys   uint64
	}
	var status struct {
		Nodes      int
		NodesAlive int `json:"nodes_alive"`
		Partitions int
	}
	var keyspace struct {
		Replicas, Partitions int
		GCWindow             float64 `json:"gc_window"`
	}
	for _, c := range []struct {
		args string
		into any
	}{{"partitions lists", &partition}, {"status", &status}, {"keyspace describe lists", &keyspace}} {
		line, _, _ := strings.Cut(b.ok(append(strings.Fields(c.args), "-o", "json")...), "\n")
		if err := json.Unmarshal([]byte(line), c.into); err != nil {
			t.Errorf("%s: %v: %s", c.args, err, line)
		}
	}
	if len(partition.Replicas) != 3 || len(partition.Learners) != 0 || status.Nodes != 3 ||
		status.NodesAlive != 3 || keyspace.GCWindow != 3600 {
		t.Errorf("%+v, %+v, %+v", partition, status, keyspace)
	}
	for _, args := range []string{"partitions lists", "status", "nodes", "keyspace list",
		"keyspace describe lists", "debug txns"} {
		for line := range strings.Lines(b.walk(100, exit.OK, "", strings.Fields(args)...)) {
			if w := text.StringWidth(plainColors.Replace(strings.TrimSuffix(line, "\n"))); w > 100 {
				t.Errorf("%s: %d columns: %s", args, w, line)
			}
		}
	}
	b.want(`{"name":"lists","dropped":true}`+"\n", "keyspace", "drop", "lists", "--yes", "-o", "json")
}

// Load and dump take --output as the others do.
func TestLoadAndDumpHaveOutput(t *testing.T) {
	b := cluster(t)
	b.ok("keyspace", "create", "lines", "--partitions", "hash:2")
	var loaded struct {
		Records   uint64
		Elapsed   float64
		PerSecond uint64 `json:"records_per_second"`
	}
	if err := json.Unmarshal([]byte(b.run("k\tv\n", exit.OK, "load", "lines", "-o", "json").out),
		&loaded); err != nil || loaded.Records != 1 || loaded.Elapsed <= 0 {
		t.Errorf("%v: %+v", err, loaded)
	}
	b.want(`{"key":"k","value":"v"}`+"\n", "dump", "lines", "-o", "json")
	b.want("k\tv\n", "dump", "lines")
	b.fails(exit.Usage, "exclude each other", "dump", "lines", "-o", "json", "--format", "tsv")
}
