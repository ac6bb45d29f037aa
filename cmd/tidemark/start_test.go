package main

import (
	"strings"
	"testing"
	"time"
)

// TestStartRefusesShortElectionTimeouts: values with which reads are refused after each election are not started with.
func TestStartRefusesShortElectionTimeouts(t *testing.T) {
	f := startFlags{dir: "/d", listen: "127.0.0.1:7400", core: []string{"127.0.0.1:7400"}, httpDebug: "local"}
	if err := f.check(); err != nil {
		t.Fatal(err)
	}
	f.tick, f.electionTicks = 50*time.Millisecond, 3
	err := f.check()
	if err == nil || exitCode(t.Context(), err) != exitUsage || !strings.Contains(err.Error(), "--election-ticks") {
		t.Fatalf("--tick 50ms --election-ticks 3: %v", err)
	}
	t.Log(err)
	f.maxOffset = 80 * time.Millisecond
	if err := f.check(); err != nil {
		t.Error(err)
	}
}
