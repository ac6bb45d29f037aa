package watch

type state uint8

const (
	stateLagging state = iota
	stateLive
	stateEnded
	stateRemoved
)

// watch is one watch of a stream. Hub.mu guards everything in it but stream, id and the options.
// There may be a million of them: a further field is expensive.
type watch struct {
	stream *Stream
	entry  *interestEntry
	id     int64
	// next is the next event that it has to get, if it lags. If it is live it gets nothing before
	// next. If it has ended, next is the revision at which the history starts.
	next Position
	// last is the newest revision of which it got something.
	last uint64
	// pass is the pass over the history in which it takes part.
	pass uint32
	// at is its place in the list of its entry, -1 if it is in none, and lagAt that in
	// stream.lagging.
	at, lagAt int32
	// slot is for stream.take.
	slot int32

	state state
	// cut is set if it has a part of the revision last, and the rest comes.
	cut bool
	// late is set if it began at the compacted revision, and has not got beyond that.
	late                      bool
	previous, noPut, noDelete bool
}

// list is that of the entry in which a watch of this state belongs.
func (i *interest) list(s state) *[]*watch {
	if s == stateLive {
		return &i.live
	}
	return &i.lagging
}

// enlist puts a watch into the list of its entry; unlist takes it out.
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

// lagLocked makes a new or live watch one that lags from a position on.
func (h *Hub) lagLocked(w *watch, from Position) {
	w.unlist()
	w.state, w.next = stateLagging, from
	s := w.stream
	w.lagAt = int32(len(s.lagging))
	s.lagging = append(s.lagging, w)
	h.mu.lagging++
}

// caughtUpLocked takes a watch out of those that lag.
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

// parkLocked has a watch lag from a position on, until its stream has room.
func (h *Hub) parkLocked(w *watch, at Position) {
	if w.state == stateLive {
		h.lagLocked(w, at)
		return
	}
	w.unlist()
	w.next = at
}

// joinLocked makes a watch that lags, and has no part of a revision, a live one, if it has
// everything up to where the live ones are, or needs only a few of the newest events.
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

// leaveLocked takes a watch out of everything but its stream's map.
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

// hungerLocked has the passes over the history look at a stream with watches that lag, if it has
// room.
func (h *Hub) hungerLocked(s *Stream) {
	if len(s.lagging) > 0 && !s.hungry && !s.closed && s.bytes < h.boundLocked()/2 {
		s.hungry = true
		h.mu.hungry = append(h.mu.hungry, s)
		poke(h.behind)
	}
}
