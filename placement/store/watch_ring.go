package store

import (
	"slices"
	"sync"
)

// revisionEvents is everything that happened at one revision.
type revisionEvents struct {
	revision uint64
	events   []Event
	// tooMany: they are more than the ring keeps, and are in the database alone.
	tooMany bool
}

// position is an event: the one of that number at a revision, and all before it are done with.
type position struct {
	revision uint64
	number   uint32
}

func (p position) before(q position) bool {
	return p.revision < q.revision || p.revision == q.revision && p.number < q.number
}

// stretch is a part of the history: whole revisions, or a piece of one.
type stretch struct {
	revisions []revisionEvents
	// first is the number of the first event, which is not 0 in a later piece of a revision.
	first uint32
	// next is the position behind the stretch. It is not the first of a revision if the stretch is a
	// piece of one, but for the last.
	next position
	// piece: a revision that is too large to be had at once.
	piece bool
	// previous: its events say what their keys were before.
	previous bool
}

// ring has the newest events in memory. Apply writes to it, and never waits for more than a look
// into it.
type ring struct {
	limits *watchLimits
	mu     struct {
		sync.Mutex
		// head is the newest revision; recent has all events from revision floor on, one element
		// for each revision.
		head, floor   uint64
		recent        []revisionEvents
		events, bytes int
	}
}

// publish adds the events of an application.
func (r *ring) publish(added []revisionEvents, head uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.head = head
	for _, one := range added {
		if one.tooMany || len(one.events) > r.limits.recentEvents {
			r.mu.floor = one.revision + 1
			r.mu.recent, r.mu.events, r.mu.bytes = nil, 0, 0
			continue
		}
		r.mu.recent = append(r.mu.recent, one)
		r.mu.events += len(one.events)
		for _, e := range one.events {
			r.mu.bytes += e.size()
		}
	}
	for len(r.mu.recent) > 0 &&
		(r.mu.events > r.limits.recentEvents || r.mu.bytes > r.limits.recentBytes) {
		oldest := r.mu.recent[0]
		r.mu.recent[0] = revisionEvents{}
		r.mu.recent = r.mu.recent[1:]
		r.mu.floor = oldest.revision + 1
		r.mu.events -= len(oldest.events)
		for _, e := range oldest.events {
			r.mu.bytes -= e.size()
		}
	}
}

// reset forgets all events: the state was replaced.
func (r *ring) reset(head uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.head, r.mu.floor = head, head+1
	r.mu.recent, r.mu.events, r.mu.bytes = nil, 0, 0
}

func (r *ring) head() uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.head
}

// read returns the stretch from a position on. Not ok: it is not in memory, but in the database.
func (r *ring) read(from position) (st stretch, head uint64, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	head = r.mu.head
	if from.revision > head {
		return stretch{next: from}, head, true
	}
	if from.revision < r.mu.floor {
		return stretch{}, head, false
	}
	st.first, st.piece, st.next, st.previous = from.number, from.number > 0, from, true
	events, bytes := 0, 0
	for _, one := range r.mu.recent[from.revision-r.mu.floor:] {
		if events >= r.limits.stretchEvents || bytes >= r.limits.stretchBytes ||
			st.piece && len(st.revisions) > 0 {
			break
		}
		if len(st.revisions) == 0 {
			one.events = one.events[min(int(from.number), len(one.events)):]
		}
		st.revisions = append(st.revisions, one)
		events += len(one.events)
		for _, e := range one.events {
			bytes += e.size()
		}
		st.next = position{revision: one.revision + 1}
	}
	return st, head, true
}

// since returns the whole revisions from one on and below another, if they are in memory and have
// no more than so many events.
func (r *ring) since(from, below uint64, most int) (recent []revisionEvents, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if from < r.mu.floor || below > r.mu.head+1 {
		return nil, false
	}
	recent = r.mu.recent[from-r.mu.floor : below-r.mu.floor]
	for _, one := range recent {
		if most -= len(one.events); most < 0 {
			return nil, false
		}
	}
	return slices.Clone(recent), true
}
