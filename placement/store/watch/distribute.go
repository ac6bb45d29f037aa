package watch

import (
	"slices"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// distribute serves the live watches.
func (h *Hub) distribute() { h.run(h.published, h.distributeSome) }

func (h *Hub) distributeSome() (more bool, err error) {
	h.mu.Lock()
	live, previous := h.mu.live, h.WantsPrevious()
	h.mu.Unlock()
	st, compacted, err := h.read(live, previous)
	switch {
	case err == nil && compacted > 0:
		h.endLive(compacted)
		return true, nil
	case err != nil || st.next == live:
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.offered = 0
	at := Position{Number: st.first}
	for i, one := range st.revisions {
		if !st.previous && h.WantsPrevious() {
			// A new live watch wants previous values, which were not read.
			return true, nil
		}
		at.Revision = one.Number
		for n := range one.Events {
			h.offerAll(&one.Events[n], at, st.piece, false)
			at.Number++
		}
		at.Number = 0
		if h.mu.live = (Position{Revision: one.Number + 1}); i == len(st.revisions)-1 {
			break
		}
		h.pauseLocked()
	}
	if h.mu.live = st.next; st.piece && st.next.Number == 0 {
		for _, w := range h.mu.cut {
			if w.state == stateLive && w.cut {
				h.markLocked(w)
			}
		}
		h.mu.cut = nil
	}
	h.tellAskingLocked()
	return true, nil
}

// pauseLocked releases the lock for a moment, if it was held for long.
func (h *Hub) pauseLocked() {
	if h.mu.offered < h.limits.OffersAtOnce {
		return
	}
	h.mu.offered = 0
	h.mu.Unlock()
	h.mu.Lock()
}

// offerAll offers an event to the watches of its key that are live, or belong to the pass.
func (h *Hub) offerAll(e *Event, at Position, piece, pass bool) {
	h.mu.index.Visit(e.KV.Key, func(entry *interestEntry) {
		list := entry.Value.live
		if pass {
			list = entry.Value.lagging
		}
		// Backwards, since a watch without room leaves the list, and the last takes its place.
		for i := len(list) - 1; i >= 0; i-- {
			w := list[i]
			if !at.Before(w.next) && (!pass || w.pass == h.mu.pass && !w.next.Before(h.mu.from)) {
				h.offerLocked(w, e, at, piece, !pass)
			}
		}
	})
}

// offerLocked puts an event into the queue of a watch's stream. If the queue has no room, the watch
// lags from this event on, and the result is false. A queue that has taken the beginning of a
// revision takes the rest too, unless the revision comes in pieces.
//
// INVARIANT: as in etcd, a lagging watch gets no previous value for a change at or below the
// compacted revision. This holds even if the ring has the value, which depends on other watches. A
// live watch gets the previous value, unless it is late: the change was above the compacted
// revision when it was made, even if a compaction is applied together with it.
func (h *Hub) offerLocked(w *watch, e *Event, at Position, piece, live bool) bool {
	h.mu.offered++
	if w.noPut && !e.Deleted() || w.noDelete && e.Deleted() {
		return true
	}
	s := w.stream
	if s.bytes >= h.boundLocked() && (piece || w.last != at.Revision) {
		if !piece {
			at.Number = 0
		}
		h.parkLocked(w, at)
		return false
	}
	event := *e
	hidden := (!live || w.late) && at.Revision <= h.history.Compacted()
	w.late = w.late && hidden
	if !w.previous || hidden {
		event.Previous = nil
	}
	if w.cut && at.Revision > w.last {
		h.markLocked(w)
	}
	if invariants.Enabled {
		invariants.Check(at.Revision >= w.last && at.Revision == e.KV.GetModRevision(),
			"watch %d gets revision %d of key %q as one of revision %d, and has had revision %d", w.id,
			e.KV.GetModRevision(), e.KV.GetKey(), at.Revision, w.last)
	}
	if w.last = at.Revision; piece && !w.cut {
		if w.cut = true; w.state == stateLive {
			h.mu.cut = append(h.mu.cut, w)
		}
	}
	s.push(queued{w, event}, event.Size())
	return true
}

// markLocked queues the end of a revision that a watch has got in part.
func (h *Hub) markLocked(w *watch) {
	w.cut = false
	w.stream.push(queued{watch: w}, 0)
}

// boundLocked returns the bytes that a stream may have in its queue before its watches lag.
func (h *Hub) boundLocked() int {
	l := h.limits
	return min(l.QueueMost, max(l.QueueLeast, l.QueueBudget/max(1, len(h.mu.streams))))
}

// endLive ends the live watches that need events below the first revision of the history, after a
// snapshot without these events was installed.
func (h *Hub) endLive(compacted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.mu.live
	h.mu.live, h.mu.cut = Position{Revision: compacted}, nil
	for s := range h.mu.streams {
		for _, w := range s.watches {
			if w.state == stateLive && max(w.next.Revision, from.Revision) < compacted {
				h.endLocked(w, compacted)
			}
		}
	}
	h.tellAskingLocked()
}

// tellAskingLocked wakes the streams whose watches have reached the revision that Progress was
// asked for.
func (h *Hub) tellAskingLocked() {
	h.mu.asking = slices.DeleteFunc(h.mu.asking, func(s *Stream) bool {
		told := s.closed || len(s.lagging) == 0 && h.mu.live.Revision >= s.asked
		if told {
			s.asks = false
			poke(s.ready)
		}
		return told
	})
}
