package watch

import (
	"slices"
	"sync"
)

// stretch is a part of the history: whole revisions, or a piece of one.
type stretch struct {
	revisions []Revision
	// first is the number of the first event; not 0 in a later piece of a revision.
	first uint32
	// next is the position after the stretch. If the stretch is a piece of a revision, and not the
	// last, next is within that revision.
	next Position
	// piece is set if the stretch is a part of a revision that is too large to come as a whole.
	piece bool
	// previous is set if the events have previous values.
	previous bool
}

// ring has the newest events in memory. Publish writes to it; readers hold its lock only briefly.
type ring struct {
	limits *Limits
	mu     struct {
		sync.Mutex
		// head is the newest revision; recent has all events from revision floor on, one element
		// for each revision. Events from revision told on have previous values.
		head, floor   uint64
		told          uint64
		recent        []Revision
		events, bytes int
	}
}

// publish adds the events of applied commands.
func (r *ring) publish(added []Revision, head uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.head = head
	for _, one := range added {
		if one.TooMany || len(one.Events) > r.limits.RecentEvents {
			r.mu.floor = one.Number + 1
			r.mu.recent, r.mu.events, r.mu.bytes = nil, 0, 0
			continue
		}
		r.mu.recent = append(r.mu.recent, one)
		r.mu.events += len(one.Events)
		for _, e := range one.Events {
			r.mu.bytes += e.Size()
			if e.Untold {
				r.mu.told = one.Number + 1
			}
		}
	}
	for len(r.mu.recent) > 0 &&
		(r.mu.events > r.limits.RecentEvents || r.mu.bytes > r.limits.RecentBytes) {
		oldest := r.mu.recent[0]
		r.mu.recent[0] = Revision{}
		r.mu.recent = r.mu.recent[1:]
		r.mu.floor = oldest.Number + 1
		r.mu.events -= len(oldest.Events)
		for _, e := range oldest.Events {
			r.mu.bytes -= e.Size()
		}
	}
}

// reset removes all events, since the state was replaced.
func (r *ring) reset(head uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.head, r.mu.floor, r.mu.told = head, head+1, 0
	r.mu.recent, r.mu.events, r.mu.bytes = nil, 0, 0
}

func (r *ring) head() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.head
}

// read returns the stretch from a position on, with previous values if previous is set. ok is false
// if the ring lacks the events.
func (r *ring) read(from Position, previous bool) (st stretch, head uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	head = r.mu.head
	if from.Revision > head {
		return stretch{next: from}, head, true
	}
	told := from.Revision >= r.mu.told
	if from.Revision < r.mu.floor || previous && !told {
		return stretch{}, head, false
	}
	st.first, st.piece, st.next, st.previous = from.Number, from.Number > 0, from, told
	events, bytes := 0, 0
	for _, one := range r.mu.recent[from.Revision-r.mu.floor:] {
		if events >= r.limits.StretchEvents || bytes >= r.limits.StretchBytes ||
			st.piece && len(st.revisions) > 0 {
			break
		}
		if len(st.revisions) == 0 {
			one.Events = one.Events[min(int(from.Number), len(one.Events)):]
		}
		st.revisions = append(st.revisions, one)
		events += len(one.Events)
		for _, e := range one.Events {
			bytes += e.Size()
		}
		st.next = Position{Revision: one.Number + 1}
	}
	return st, head, true
}

// compacted reads events from the ring that the history has no longer, up to the history's first
// revision. Their previous values are compacted, so events without them will do.
func (r *ring) compacted(from Position, start uint64) (st stretch, ok bool) {
	if st, _, ok = r.read(from, false); !ok || from.Revision >= start {
		return stretch{}, false
	}
	for i, one := range st.revisions {
		if one.Number > start {
			st.revisions = st.revisions[:i]
			st.next = Position{Revision: one.Number}
			break
		}
	}
	st.previous = true
	return st, len(st.revisions) > 0
}

// since returns the whole revisions from `from` on and below `below`. ok is false if the ring lacks
// them, or lacks previous values that are wanted, or if they have more than `most` events.
func (r *ring) since(from, below uint64, previous bool, most int) (recent []Revision, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from < r.mu.floor || below > r.mu.head+1 || previous && from < r.mu.told {
		return nil, false
	}
	recent = r.mu.recent[from-r.mu.floor : below-r.mu.floor]
	for _, one := range recent {
		if most -= len(one.Events); most < 0 {
			return nil, false
		}
	}
	return slices.Clone(recent), true
}
