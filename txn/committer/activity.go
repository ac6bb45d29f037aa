package committer

import (
	"sync/atomic"
	"time"
)

// activity is what the application does with a transaction. The application counts, which costs
// next to nothing; the goroutine of heartbeats looks at the time, once in a heartbeatTick.
type activity struct {
	// entered and left count calls that have begun, and that have ended.
	entered, left atomic.Uint64
	// seen is entered at the last heartbeatTick, and since when it last changed. Transaction.mu
	// guards both.
	seen  uint64
	since time.Time
}

// Enter says that the application has made a call, which may wait for others for as long as it
// takes. Calls may be nested.
func (t *Transaction) Enter() { t.activity.entered.Add(1) }

// Leave says that the call has ended.
func (t *Transaction) Leave() { t.activity.left.Add(1) }

// look takes in whether the application has done something.
func (a *activity) look(now time.Time) {
	entered := a.entered.Load()
	if left := a.left.Load(); entered != left || entered != a.seen || a.since.IsZero() {
		a.seen, a.since = entered, now
	}
}

// idle is for how long the application had made no call at the last heartbeatTick.
func (a *activity) idle(now time.Time) time.Duration { return now.Sub(a.since) }
