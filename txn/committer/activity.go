package committer

import (
	"sync/atomic"
	"time"
)

// activity is what the application does with a transaction. The application counts, which costs
// next to nothing; the time is looked at by the heart, once in a heartTick.
type activity struct {
	// entered and left count calls that have begun, and that have ended.
	entered, left atomic.Uint64
	// Of the heart, guarded by Transaction.mu: what it saw last, and since when that has not
	// changed.
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

// idle is for how long the application had made no call when the heart looked last.
func (a *activity) idle(now time.Time) time.Duration { return now.Sub(a.since) }
