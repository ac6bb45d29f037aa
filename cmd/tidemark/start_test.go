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

// TestStartRefusesShortWatchProgress: a flag whose value the server would not follow is refused.
func TestStartRefusesShortWatchProgress(t *testing.T) {
	const self = "127.0.0.1:7400"
	f := startFlags{dir: "/d", listen: self, core: []string{self}, httpDebug: "local"}
	for interval, fine := range map[time.Duration]bool{0: true, 100 * time.Millisecond: true,
		5 * time.Second: true, 99 * time.Millisecond: false, -time.Second: false} {
		f.progress = interval
		err := f.check()
		if fine && err != nil || !fine && (exit.Code(t.Context(), err) != exit.Usage ||
			!strings.Contains(err.Error(), "--watch-progress-interval")) {
			t.Errorf("--watch-progress-interval %v: %v", interval, err)
		}
	}
}
