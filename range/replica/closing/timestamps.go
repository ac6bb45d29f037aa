package closing

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
)

// Timestamps are the closed timestamps of a replica, but for what the applied entries have brought.
// The zero value is ready to use.
type Timestamps struct {
	// promised is the highest timestamp that this leadership has closed, applied here or not.
	promised hlc.Timestamp
	// beside is closed beside the log. later is as well, once the log is applied up to index.
	beside, later hlc.Timestamp
	index         uint64
	// sleepsIn tells what is closed while the group sleeps under another replica; nil: nothing does.
	sleepsIn group.Source
	// place is this group's place in a set of groups that sleep, if it leads; nil: it is in none.
	place group.Place
}

// Begin begins a leadership, which has promised nothing yet.
func (t *Timestamps) Begin() { t.promised = hlc.Timestamp{} }

// Promise promises a timestamp, and returns what is promised: that, or what was promised before.
func (t *Timestamps) Promise(at hlc.Timestamp) hlc.Timestamp {
	t.promised = hlc.Max(t.promised, at)
	return t.promised
}

// Promised is the highest timestamp that this leadership has closed; zero: none.
func (t *Timestamps) Promised() hlc.Timestamp { return t.promised }

// CloseBeside closes a timestamp beside the log here, where nothing is in flight.
func (t *Timestamps) CloseBeside(at hlc.Timestamp) { t.beside = hlc.Max(t.beside, at) }

// Note takes what a leader has closed beside the log for replicas that have applied it up to an
// index; applied is how far this one has. Of what does not count yet only the latest is kept.
func (t *Timestamps) Note(closed hlc.Timestamp, index, applied uint64) {
	t.takeEffect(applied)
	if index <= applied {
		t.CloseBeside(closed)
	} else if t.later.Less(closed) {
		t.later, t.index = closed, index
	}
}

// takeEffect takes what counts by what is applied.
func (t *Timestamps) takeEffect(applied uint64) {
	if !t.later.IsZero() && t.index <= applied {
		t.CloseBeside(t.later)
		t.later = hlc.Timestamp{}
	}
}

// Closed is what is closed beside the log for a replica that has applied it up to an index: all
// that is ever written at or below it is applied, or locked.
func (t *Timestamps) Closed(applied uint64) hlc.Timestamp {
	t.takeEffect(applied)
	closed := t.beside
	if t.sleepsIn != nil {
		if asleep, index := t.sleepsIn.Closed(); index <= applied {
			closed = hlc.Max(closed, asleep)
		}
	}
	if t.Asleep() {
		closed = hlc.Max(closed, hlc.Timestamp{Wall: t.place.Closed()})
	}
	return closed
}

// SleepIn says what tells what is closed from now on while the group sleeps under another replica;
// nil: nothing does.
func (t *Timestamps) SleepIn(s group.Source) { t.sleepsIn = s }

// Sleep takes a place among groups that sleep, for which others close timestamps; nil: there is
// none. Nothing is in flight, and Awake is called before anything is evaluated.
func (t *Timestamps) Sleep(place group.Place) { t.place = place }

// Asleep says that others close timestamps for this group.
func (t *Timestamps) Asleep() bool { return t.place != nil && !t.place.Gone() }

// Awake ends that. What was closed meanwhile is promised.
func (t *Timestamps) Awake() {
	if t.place == nil {
		return
	}
	closed := hlc.Timestamp{Wall: t.place.Remove()}
	t.place = nil
	t.Promise(closed)
	t.CloseBeside(closed) // nothing was in flight
}
