package store

import (
	"context"
	"errors"
)

// catchUp serves the watches that lag, in passes: each reads one stretch of the history for all of
// them that are not beyond it, and whose streams have room.
func (h *watchHub) catchUp(ctx context.Context) { h.run(ctx, h.behind, h.passOnce) }

// passOnce makes a pass.
func (h *watchHub) passOnce() (more bool, err error) {
	streams, from, previous := h.muster()
	if len(streams) == 0 {
		return false, nil
	}
	st, err := h.read(from, previous)
	var compacted *CompactedError
	switch {
	case errors.As(err, &compacted):
		h.endLagging(streams, compacted.Revision)
	case err != nil:
		return false, err
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

// muster takes the streams that have room, marks their watches that lag as those of the next pass,
// and says where it begins: at the first event that one of them is to get, or, every second time,
// that one of those is to get that are not far behind.
func (h *watchHub) muster() (streams []*WatchStream, from position, previous bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.pass++
	hungry := h.mu.hungry
	h.mu.hungry = nil
	head := h.ring.head()
	near := position{revision: head - min(head, h.limits.nearRevisions)}
	var first, firstNear *position
	h.mu.offered = 0
	for _, s := range hungry {
		if s.hungry = s.bytes < h.boundLocked()/2 && !s.closed; !s.hungry {
			// It has no room meanwhile: it comes back when it has, and until then its watches are not
			// in the way of others.
			s.unlistLagging()
			continue
		}
		streams = append(streams, s)
		for _, w := range s.lagging {
			if w.pass = h.mu.pass; w.at < 0 {
				w.enlist()
			}
			if next := w.next; first == nil || next.before(*first) {
				first = &next
			}
			if next := w.next; !next.before(near) && (firstNear == nil || next.before(*firstNear)) {
				firstNear = &next
			}
		}
		h.mu.offered += len(s.lagging)
		h.pauseLocked()
	}
	switch {
	case first == nil:
		// None lags any more.
		for _, s := range streams {
			s.hungry = false
			h.hungerLocked(s) // one may have come meanwhile
		}
		return nil, position{}, false
	case firstNear != nil && h.mu.pass%2 == 0:
		h.mu.from = *firstNear
	default:
		h.mu.from = *first
	}
	return streams, h.mu.from, h.mu.previous > 0
}

// pass distributes a stretch, and then moves those of the pass on to its end.
func (h *watchHub) pass(streams []*WatchStream, st stretch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.offered = 0
	at := position{number: st.first}
	for _, one := range st.revisions {
		h.pauseLocked()
		at.revision = one.revision
		for n := range one.events {
			h.offerAll(&one.events[n], at, st.piece, true)
			at.number++
		}
		at.number = 0
	}
	next, near := h.extendLocked(st.next)
	for _, s := range streams {
		// Backwards: one that has caught up leaves the list, and the last takes its place. The same
		// one may be met twice if others leave while the lock is free, which does no harm.
		for i := len(s.lagging) - 1; i >= 0; i-- {
			if h.mu.offered++; h.mu.offered >= h.limits.offersAtOnce {
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

// extendLocked distributes to those of the pass what has happened since, if that is in memory and
// not much: then they have everything up to where the live watches are. near says so.
func (h *watchHub) extendLocked(next position) (reached position, near bool) {
	live := h.mu.live
	if !next.before(live) {
		return next, true
	}
	if next.number > 0 || live.number > 0 {
		return next, false
	}
	recent, ok := h.ring.since(next.revision, live.revision, h.limits.stretchEvents)
	if !ok {
		return next, false
	}
	for _, one := range recent {
		for n := range one.events {
			h.offerAll(&one.events[n], position{one.revision, uint32(n)}, false, true)
		}
	}
	return live, true
}

// advanceLocked moves a watch on to the end of the stretch that its pass has distributed, if it
// took part in it and had room for all.
func (h *watchHub) advanceLocked(w *watch, next position) {
	if w.at < 0 || w.pass != h.mu.pass || w.next.before(h.mu.from) {
		return
	}
	if w.next.before(next) {
		w.next = next
	}
	if w.cut && w.next.revision > w.last {
		h.markLocked(w)
	}
	h.joinLocked(w)
}

// endLagging ends the watches of a pass that need events below the revision at which the history
// starts.
func (h *watchHub) endLagging(streams []*WatchStream, compacted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range streams {
		for i := len(s.lagging) - 1; i >= 0; i-- {
			if w := s.lagging[i]; w.next.revision < compacted {
				h.endLocked(w, compacted)
			}
		}
	}
}
