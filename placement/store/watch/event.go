package watch

import "github.com/tidemarkdb/tidemark/placement/store/storepb"

// Event is one change of one key. Watches share events, so no one may change them.
type Event struct {
	// KV is the key after the change. In a deletion Version is 0, and only Key and ModRevision are
	// set.
	KV *storepb.KeyValue
	// Previous is the key before the change; nil if the key did not exist, or if that version has
	// been compacted.
	Previous *storepb.KeyValue
	// Untold is set if the key existed before, but was not read, so that Previous is nil. Only
	// published events have it: a watch that wants previous values gets the event from the history
	// instead.
	Untold bool
}

// Deleted reports whether the change is a deletion.
func (e Event) Deleted() bool { return e.KV.Version == 0 }

// Size estimates the event's memory in bytes.
func (e Event) Size() int {
	n := len(e.KV.Key) + len(e.KV.Value) + 64
	if e.Previous != nil {
		n += len(e.Previous.Key) + len(e.Previous.Value)
	}
	return n
}

// Revision are all events of one revision.
type Revision struct {
	Number uint64
	Events []Event
	// TooMany is set if the events are more than the ring keeps. Then they are in the history only.
	TooMany bool
}

// Position is a position among events: before event Number of a revision.
type Position struct {
	Revision uint64
	Number   uint32
}

// Before reports whether p is before q.
func (p Position) Before(q Position) bool {
	return p.Revision < q.Revision || p.Revision == q.Revision && p.Number < q.Number
}
