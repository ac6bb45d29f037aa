package main

import (
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/cmd/tidemark/internal/exit"
)

// TestStartRefusesShortElectionTimeouts: a server is not started with values with which reads are
// refused after each election.
func TestStartRefusesShortElectionTimeouts(t *testing.T) {
	const self = "127.0.0.1:7400"
	f := startFlags{dir: "/d", listen: self, core: []string{self}, httpDebug: "local"}
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	f.tick, f.electionTicks = 50*time.Millisecond, 3
	err := f.check()
	if err == nil || exit.Code(t.Context(), err) != exit.Usage ||
		!strings.Contains(err.Error(), "--election-ticks") {
		t.Fatalf("--tick 50ms --election-ticks 3: %v", err)
	}
	t.Log(err)
	f.maxOffset = 80 * time.Millisecond
	if err := f.check(); err != nil {
		t.Error(err)
	}
}
