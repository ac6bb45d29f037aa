package clockhealth

import (
	"math"
	"time"
)

const (
	// measureFor is for how many election timeouts after its start a process waits for measurements
	// of more than one clock.
	measureFor = 3
	// disputedByStep replaces disputedFor if this process's clock has moved. The clock is then
	// probably wrong; but a slow network looks the same, and that may last.
	disputedByStep = 30 * time.Second
)

// quarantine says why a clock is not trusted before peers have confirmed it.
type quarantine struct {
	// jump is how far the clock jumped last; zero if the reason is the start.
	jump time.Duration
	// until is when one peer suffices to end the quarantine of a start.
	until int64
	// patience is how long the clock must be disputed to be trusted all the same, and since is the
	// beginning of the dispute; math.MaxInt64 if it is not disputed.
	patience time.Duration
	since    int64
}

// settled reports whether the clock has agreed with the peers well enough, or long enough.
func (q *quarantine) settled(c consensus, now int64) bool {
	if c != disputed {
		q.since = math.MaxInt64
		return c == undisputed
	}
	q.since = min(q.since, now)
	return now-q.since >= int64(q.patience)
}
