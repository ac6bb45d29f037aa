package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tidemarkdb/tidemark/bench/proof/calm"
	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/bench/proof/nemesis/availability"
	"github.com/tidemarkdb/tidemark/kv/coord/direct"
)

// report has the results of a run.
type report struct {
	Seed       uint64         `json:"seed"`
	Network    string         `json:"network"`
	Duration   time.Duration  `json:"duration_ns"`
	Steps      int            `json:"steps"`
	Operations map[string]int `json:"operations"`
	// Transactions is the number of successful transactions. Retries is the number of attempts that
	// were followed by another attempt.
	Transactions int `json:"transactions"`
	Retries      int `json:"retries"`
	// Coordination counts the calls of the coordination service that used gRPC and those that bypassed
	// gRPC.
	Coordination direct.Stats          `json:"coordination_calls"`
	Histories    string                `json:"histories"`
	Violations   []string              `json:"violations"`
	Findings     []string              `json:"findings"`
	Rows         []availability.Row    `json:"availability"`
	Samples      []availability.Sample `json:"samples"`

	// Ended counts the results of operations, in calm and in storm.
	Ended []calm.Row `json:"ended"`

	history []history.Operation
}

func (n *nemesis) report() *report {
	transactions, retries := n.proof.Transactions()
	return &report{
		Transactions: transactions, Retries: retries, Coordination: n.coordination.Calls(),
		Seed: n.options.seed, Network: n.network.Kind(), Duration: n.proof.Elapsed(),
		Steps: len(n.samples), Operations: n.proof.Operations(),
		Histories: n.checked, Violations: n.proof.Violations(), Findings: n.journal.findings(),
		Rows: availability.Table(n.samples), Samples: n.samples, Ended: n.proof.Rows(),
		history: n.proof.History.Operations(),
	}
}

// summary returns the report as text for people.
func (r *report) summary() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d, %v, %d steps; %d operations answered, %d transactions (%d "+
		"retries); histories: %s\n", r.Seed, r.Duration.Round(time.Second),
		r.Steps, succeeded(r.Operations), r.Transactions, r.Retries, r.Histories)
	fmt.Fprintf(&b, "%d coordination calls past gRPC, %d by gRPC\n", r.Coordination.Direct,
		r.Coordination.GRPC)
	fmt.Fprintf(&b, "\nHow operations ended:\n\n%s", calm.Table(r.Ended))
	leftOut := 0
	for _, row := range r.Rows {
		leftOut += row.LeftOut
	}
	fmt.Fprintf(&b, "\nThe longest time in which clients of some partition got no answer, in "+
		"seconds (%d steps left out, in which the machine was suspended):\n\n%s\n",
		leftOut, availability.Markdown(r.Rows))
	fmt.Fprintf(&b, "%d findings\n", len(r.Findings))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "  %s\n", f)
	}
	fmt.Fprintf(&b, "%d violations\n", len(r.Violations))
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %s\n", v)
	}
	return b.String()
}

// writeJSON writes the report to a file.
func (r *report) writeJSON(path string) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(text, '\n'), 0o644)
}

// write writes report.json and report.md into a directory. After a violation it also writes
// history.txt.
func (r *report) write(dir string) error {
	if err := r.writeJSON(filepath.Join(dir, "report.json")); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.md"), []byte(r.summary()),
		0o644); err != nil {
		return err
	}
	if len(r.Violations) == 0 {
		return nil
	}
	var b strings.Builder
	for _, o := range r.history {
		fmt.Fprintln(&b, o)
	}
	return os.WriteFile(filepath.Join(dir, "history.txt"), []byte(b.String()), 0o644)
}
