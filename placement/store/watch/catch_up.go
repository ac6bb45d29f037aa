package watch

// catchUp serves the lagging watches in passes. Each pass reads one stretch of the history, for all
// lagging watches that have not reached its end and whose streams have room.
func (h *Hub) catchUp() { h.run(h.behind, h.passOnce) }

// passOnce makes a pass.
func (h *Hub) passOnce() (more bool, err error) {
	streams, from, previous := h.muster()
	if len(streams) == 0 {
		return false, nil
	}
	st, compacted, err := h.read(from, previous)
	switch {
	case err != nil:
		return false, err
	case compacted > 0:
		h.endLagging(streams, compacted)
	default:
		h.pass(streams, st)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range streams {
		s.hungry = false
		if h.hungerLocked(s); !s.hungry {
			s.unlistLagging()
		}
	}
	h.tellAskingLocked()
	return len(h.mu.hungry) > 0, nil
}

// muster takes the streams that have room, marks their lagging watches as watches of the next pass,
// and returns the pass's beginning: the first event that one of these watches needs. Every second
// time it is the first event that a watch not far behind needs.
func (h *Hub) muster() (streams []*Stream, from Position, previous bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.pass++
	hungry := h.mu.hungry
	h.mu.hungry = nil
	head := h.ring.head()
	near := Position{Revision: head - min(head, h.limits.NearRevisions)}
	var first, firstNear *Position
	h.mu.offered = 0
	for _, s := range hungry {
		if s.hungry = s.bytes < h.boundLocked()/2 && !s.closed; !s.hungry {
			// The stream has lost its room meanwhile. It comes back when it has room; until then
			// its watches must not hold others up.
			s.unlistLagging()
			continue
		}
		streams = append(streams, s)
		for _, w := range s.lagging {
			if w.pass = h.mu.pass; w.at < 0 {
				w.enlist()
			}
			if next := w.next; first == nil || next.Before(*first) {
				first = &next
			}
			if next := w.next; !next.Before(near) && (firstNear == nil || next.Before(*firstNear)) {
				firstNear = &next
			}
		}
		h.mu.offered += len(s.lagging)
		h.pauseLocked()
	}
	switch {
	case first == nil:
		// No listed stream lags any more.
		for _, s := range streams {
			s.hungry = false
			h.hungerLocked(s) // a watch may have started to lag meanwhile
		}
		return nil, Position{}, false
	case firstNear != nil && h.mu.pass%2 == 0:
		h.mu.from = *firstNear
	default:
		h.mu.from = *first
	}
	return streams, h.mu.from, h.WantsPrevious()
}

// pass distributes a stretch, and then moves the pass's watches on to its end.
func (h *Hub) pass(streams []*Stream, st stretch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.offered = 0
	at := Position{Number: st.first}
	for _, one := range st.revisions {
		h.pauseLocked()
		at.Revision = one.Number
		for n := range one.Events {
			h.offerAll(&one.Events[n], at, st.piece, true)
			at.Number++
		}
		at.Number = 0
	}
	next, near := h.extendLocked(st.next)
	for _, s := range streams {
		// Backwards: a watch that has caught up leaves the list, and the last takes its place. If
		// others leave while the lock is released, the loop may meet a watch twice, which is
		// harmless.
		for i := len(s.lagging) - 1; i >= 0; i-- {
			if h.mu.offered++; h.mu.offered >= h.limits.OffersAtOnce {
				h.pauseLocked()
				if i = min(i, len(s.lagging)-1); i < 0 {
					break
				}
				if near {
					next, near = h.extendLocked(next)
				}
			}
			h.advanceLocked(s.lagging[i], next)
		}
	}
}

// extendLocked distributes newer events to the watches of the pass, if these events are in memory
// and few. Then the watches have everything that the live watches have, and near is true.
func (h *Hub) extendLocked(next Position) (reached Position, near bool) {
	live := h.mu.live
	if !next.Before(live) {
		return next, true
	}
	if next.Number > 0 || live.Number > 0 {
		return next, false
	}
	recent, ok := h.ring.since(next.Revision, live.Revision, h.WantsPrevious(),
		h.limits.StretchEvents)
	if !ok {
		return next, false
	}
	for _, one := range recent {
		for n := range one.Events {
			h.offerAll(&one.Events[n], Position{one.Number, uint32(n)}, false, true)
		}
	}
	return live, true
}

// advanceLocked moves a watch on to the end of the distributed stretch, if it is a watch of the
// pass and had room for all events.
func (h *Hub) advanceLocked(w *watch, next Position) {
	if w.at < 0 || w.pass != h.mu.pass || w.next.Before(h.mu.from) {
		return
	}
	if w.next.Before(next) {
		w.next = next
	}
	if w.cut && w.next.Revision > w.last {
		h.markLocked(w)
	}
	h.joinLocked(w)
}

// endLagging ends the watches of a pass that need events below the first revision of the history.
func (h *Hub) endLagging(streams []*Stream, compacted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range streams {
		for i := len(s.lagging) - 1; i >= 0; i-- {
			if w := s.lagging[i]; w.next.Revision < compacted {
				h.endLocked(w, compacted)
			}
		}
	}
}
