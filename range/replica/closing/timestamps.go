package closing

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
)

// Timestamps are the closed timestamps of a replica, except for those of the applied entries. The
// zero value is ready to use.
type Timestamps struct {
	// promised is the highest timestamp that this leadership has closed, whether applied here or
	// not.
	promised hlc.Timestamp
	// beside is closed beside the log. later will be closed once the log is applied up to index.
	beside, later hlc.Timestamp
	index         uint64
	// sleepsIn tells what is closed while the group sleeps under another replica; nil if it does
	// not.
	sleepsIn group.Source
	// place is this group's place in a set of groups that sleep, if it leads; nil if it is in no
	// set.
	place group.Place
}

// Begin begins a leadership, which has promised nothing yet.
func (t *Timestamps) Begin() { t.promised = hlc.Timestamp{} }

// Promise promises a timestamp, and returns the promise that holds: this or a higher earlier one.
func (t *Timestamps) Promise(at hlc.Timestamp) hlc.Timestamp {
	t.promised = hlc.Max(t.promised, at)
	return t.promised
}

// Promised returns the highest timestamp that this leadership has closed; zero if there is none.
func (t *Timestamps) Promised() hlc.Timestamp { return t.promised }

// CloseBeside closes a timestamp of this leader beside the log, with nothing in flight.
func (t *Timestamps) CloseBeside(at hlc.Timestamp) { t.beside = hlc.Max(t.beside, at) }

// Note takes a timestamp that a leader has closed beside the log for replicas that have applied the
// log up to index; applied is the index of this replica. Of timestamps that do not count yet only
// the latest is kept.
func (t *Timestamps) Note(closed hlc.Timestamp, index, applied uint64) {
	t.takeEffect(applied)
	if index <= applied {
		t.CloseBeside(closed)
	} else if t.later.Less(closed) {
		t.later, t.index = closed, index
	}
}

// takeEffect takes timestamps that count at the applied index.
func (t *Timestamps) takeEffect(applied uint64) {
	if !t.later.IsZero() && t.index <= applied {
		t.CloseBeside(t.later)
		t.later = hlc.Timestamp{}
	}
}

// Closed returns the timestamp that is closed beside the log for a replica with an applied index:
// all writes at or below it are applied, or present as locks.
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

// SleepIn sets the source of closed timestamps from now on, while the group sleeps under another
// replica; nil if it does not.
func (t *Timestamps) SleepIn(s group.Source) { t.sleepsIn = s }

// Sleep takes a place among groups that sleep, for which others close timestamps; nil: no place.
// Nothing is in flight, and Awake is called before anything is evaluated.
func (t *Timestamps) Sleep(place group.Place) { t.place = place }

// Asleep reports that others close timestamps for this group.
func (t *Timestamps) Asleep() bool { return t.place != nil && !t.place.Gone() }

// Awake ends that. The timestamps that were closed meanwhile count as promised.
func (t *Timestamps) Awake() {
	if t.place == nil {
		return
	}
	closed := hlc.Timestamp{Wall: t.place.Remove()}
	t.place = nil
	t.Promise(closed)
	t.CloseBeside(closed) // nothing was in flight
}
