package watch

import "github.com/tidemarkdb/tidemark/placement/store/storepb"

// Event is one change of one key. It is shared: do not change it.
type Event struct {
	// KV is the key as the change left it. Version 0: it was deleted; then only Key and ModRevision
	// are set.
	KV *storepb.KeyValue
	// Previous is the key as it was before; nil if it did not exist, or if that has been compacted.
	Previous *storepb.KeyValue
	// Untold is set if the key existed before, and Previous is nil because it was not read. Only
	// published events can be so: a watch that wants the former value gets the event from the
	// history.
	Untold bool
}

// Deleted says whether the change is a deletion.
func (e Event) Deleted() bool { return e.KV.Version == 0 }

// Size is about how many bytes the event takes in memory.
func (e Event) Size() int {
	n := len(e.KV.Key) + len(e.KV.Value) + 64
	if e.Previous != nil {
		n += len(e.Previous.Key) + len(e.Previous.Value)
	}
	return n
}

// Revision is everything that happened at one revision.
type Revision struct {
	Number uint64
	Events []Event
	// TooMany: they are more than the ring keeps, and are in the history alone.
	TooMany bool
}

// Position is a place among events: before the event with that number at a revision.
type Position struct {
	Revision uint64
	Number   uint32
}

// Before says whether the event comes before another.
func (p Position) Before(q Position) bool {
	return p.Revision < q.Revision || p.Revision == q.Revision && p.Number < q.Number
}
