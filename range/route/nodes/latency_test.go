package nodes

import (
	"testing"
	"time"
)

// The shortest latency of the last seconds counts, if it has changed by a tenth.
func TestLatencyIsTheShortest(t *testing.T) {
	var l Latency
	const ms = time.Millisecond
	now := time.Unix(1000, 0)
	see := func(took, want time.Duration) {
		t.Helper()
		if l.Observe(took, now); l.Known() != want {
			t.Fatalf("%v is known after an answer that took %v, not %v", l.Known(), took, want)
		}
	}
	if l.Known() != 0 {
		t.Fatal(l.Known())
	}
	see(100*ms, 100*ms)
	see(95*ms, 100*ms) // no change by a tenth
	for range 1000 {   // there is a queue
		see(500*ms, 100*ms)
	}
	see(20*ms, 20*ms) // a shorter way counts at once
	now = now.Add(latencyWindow)
	see(70*ms, 20*ms) // that of the window before still counts
	see(60*ms, 20*ms)
	now = now.Add(latencyWindow)
	see(90*ms, 60*ms)
	see(62*ms, 60*ms)
	now = now.Add(2 * latencyWindow) // nothing was heard of it for a whole window
	see(200*ms, 200*ms)
	now = now.Add(-time.Hour) // the clock is set back
	see(300*ms, 200*ms)
	now = now.Add(latencyWindow)
	see(300*ms, 300*ms)
}
