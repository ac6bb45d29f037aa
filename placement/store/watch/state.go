package watch

type state uint8

const (
	stateLagging state = iota
	stateLive
	stateEnded
	stateRemoved
)

// watch is one watch of a stream. Hub.mu guards all fields except stream, id and the options. There
// may be a million watches, so each field is expensive.
type watch struct {
	stream *Stream
	entry  *interestEntry
	id     int64
	// next is the next event that a lagging watch needs. A live watch gets no event before next. In
	// an ended watch, next is the first revision of the history.
	next Position
	// last is the newest revision of which the watch got an event.
	last uint64
	// pass is the pass over the history in which the watch takes part.
	pass uint32
	// at is the index in the list of the watch's interest, -1 if it is in no list; lagAt is the
	// index in stream.lagging.
	at, lagAt int32
	// slot is scratch space for stream.take.
	slot int32

	state state
	// cut is set if the watch has a part of the revision last, and needs the rest.
	cut bool
	// late is set if the watch began at the compacted revision, and is still at it.
	late                      bool
	previous, noPut, noDelete bool
}

// list returns the interest's list for watches of a state.
func (i *interest) list(s state) *[]*watch {
	if s == stateLive {
		return &i.live
	}
	return &i.lagging
}

// enlist puts a watch into the list of its interest; unlist removes it.
func (w *watch) enlist() {
	list := w.entry.Value.list(w.state)
	w.at = int32(len(*list))
	*list = append(*list, w)
}

func (w *watch) unlist() {
	if w.at < 0 {
		return
	}
	list := w.entry.Value.list(w.state)
	last := len(*list) - 1
	moved := (*list)[last]
	(*list)[w.at], moved.at = moved, w.at
	(*list)[last] = nil
	if *list = (*list)[:last]; last == 0 {
		*list = nil
	}
	w.at = -1
}

// lagLocked makes a new or live watch lag from a position on.
func (h *Hub) lagLocked(w *watch, from Position) {
	w.unlist()
	w.state, w.next = stateLagging, from
	s := w.stream
	w.lagAt = int32(len(s.lagging))
	s.lagging = append(s.lagging, w)
	h.mu.lagging++
}

// caughtUpLocked removes a watch from the lagging watches.
func (h *Hub) caughtUpLocked(w *watch) {
	w.unlist()
	s := w.stream
	last := len(s.lagging) - 1
	moved := s.lagging[last]
	s.lagging[w.lagAt], moved.lagAt = moved, w.lagAt
	s.lagging[last] = nil
	if s.lagging = s.lagging[:last]; last == 0 {
		s.lagging = nil
	}
	w.lagAt = -1
	h.mu.lagging--
}

// parkLocked makes a watch lag from a position on, until its stream has room.
func (h *Hub) parkLocked(w *watch, at Position) {
	if w.state == stateLive {
		h.lagLocked(w, at)
		return
	}
	w.unlist()
	w.next = at
}

// joinLocked makes a lagging watch live, if it has no part of a revision, and has all events up to
// the live position, or lacks only a few of the newest.
func (h *Hub) joinLocked(w *watch) bool {
	live := h.mu.live
	if w.cut || w.next.Number > 0 {
		return false
	}
	if w.next.Before(live) {
		if live.Number > 0 {
			return false
		}
		recent, ok := h.ring.since(w.next.Revision, live.Revision, w.previous, h.limits.JoinEvents)
		if !ok {
			return false
		}
		for _, one := range recent {
			for n := range one.Events {
				e := &one.Events[n]
				if w.entry.Contains(e.KV.Key) &&
					!h.offerLocked(w, e, Position{one.Number, uint32(n)}, false, false) {
					return false
				}
			}
			w.next = Position{Revision: one.Number + 1}
		}
	}
	h.caughtUpLocked(w)
	w.late = w.late && w.next.Revision <= h.history.Compacted()
	w.state = stateLive
	w.enlist()
	return true
}

// endLocked ends a watch that needs events that have been compacted.
func (h *Hub) endLocked(w *watch, compacted uint64) {
	h.leaveLocked(w)
	w.state, w.next = stateEnded, Position{Revision: compacted}
	w.stream.push(queued{watch: w}, 0)
}

// leaveLocked removes a watch from all lists, but not from its stream's map.
func (h *Hub) leaveLocked(w *watch) {
	switch w.state {
	case stateLagging:
		h.caughtUpLocked(w)
	case stateLive:
		w.unlist()
	default:
		return
	}
	if w.entry.Value.all--; w.entry.Value.all == 0 {
		h.mu.index.Delete(w.entry)
	}
	w.entry = nil
	if w.previous {
		h.previous.Add(-1)
	}
}

// dropLocked removes a watch.
func (h *Hub) dropLocked(w *watch) {
	h.leaveLocked(w)
	w.state = stateRemoved
	delete(w.stream.watches, w.id)
	h.mu.open--
}

// hungerLocked puts a stream with lagging watches into hungry, if it has room.
func (h *Hub) hungerLocked(s *Stream) {
	if len(s.lagging) > 0 && !s.hungry && !s.closed && s.bytes < h.boundLocked()/2 {
		s.hungry = true
		h.mu.hungry = append(h.mu.hungry, s)
		poke(h.behind)
	}
}
