package admission

import (
	"sync/atomic"
	"time"
)

const (
	// BusyFor is for how long after a foreground request a node counts as busy, and busyNote how
	// exactly the time of it is noted: requests share a cache line that is written that seldom.
	BusyFor  = time.Second
	busyNote = 50 * time.Millisecond
)

// Load is when the foreground last asked for something. Make it with NewLoad. It is safe for
// concurrent use, and takes no lock.
type Load struct {
	epoch time.Time
	// last is the time since epoch, in nanoseconds; 0: never.
	last atomic.Int64
	// holds: what was reported last holds however long ago that was.
	holds atomic.Bool
}

// NewLoad returns one that nothing was asked of.
func NewLoad(now time.Time) *Load {
	return &Load{epoch: now.Add(-1)} // no request is at 0
}

// Noted says that a request that comes now need not be noted: another one was, a moment ago.
func (l *Load) Noted(now time.Time) bool {
	last := l.last.Load()
	return last != 0 && l.at(now) < last+int64(busyNote)
}

// Note notes a foreground request.
func (l *Load) Note(now time.Time) { l.last.Store(l.at(now)) }

// Report takes over what another Load says. That holds until something else is reported, and for
// BusyFor longer.
func (l *Load) Report(now time.Time, busy bool) {
	if l.holds.Store(busy); busy {
		l.Note(now)
	}
}

// Busy says whether the foreground has asked for something within BusyFor.
func (l *Load) Busy(now time.Time) bool {
	if l.holds.Load() {
		return true
	}
	last := l.last.Load()
	return last != 0 && l.at(now)-last < int64(BusyFor)
}

func (l *Load) at(now time.Time) int64 { return int64(now.Sub(l.epoch)) }
