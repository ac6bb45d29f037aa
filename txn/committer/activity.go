package committer

import (
	"sync/atomic"
	"time"
)

// activity measures for how long the application has made no call. The application counts its
// calls, which costs next to nothing; the heartbeat goroutine reads the clock, once in a
// heartbeatTick.
type activity struct {
	// entered and left count the calls that have begun, and the calls that have ended.
	entered, left atomic.Uint64
	// seen is the value of entered at the last heartbeatTick; since is when seen last changed.
	// Transaction.mu guards both.
	seen  uint64
	since time.Time
}

// Enter notes the beginning of a call of the application, which may wait for any time. Calls may be
// nested.
func (t *Transaction) Enter() { t.activity.entered.Add(1) }

// Leave notes the end of a call.
func (t *Transaction) Leave() { t.activity.left.Add(1) }

// look records whether the application has made a call since the last tick.
func (a *activity) look(now time.Time) {
	entered := a.entered.Load()
	if left := a.left.Load(); entered != left || entered != a.seen || a.since.IsZero() {
		a.seen, a.since = entered, now
	}
}

// idle returns how long the application had made no call at the last heartbeatTick.
func (a *activity) idle(now time.Time) time.Duration { return now.Sub(a.since) }
