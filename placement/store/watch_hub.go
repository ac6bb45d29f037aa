package store

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/spans"
)

// interest is who watches one span: those that get events as they happen, and those that take part
// in passes over the history. Others of the span lag behind and have no room.
type interest struct {
	live, lagging []*watch
	// all counts the watches of the span.
	all int
}

type interestEntry = spans.Entry[interest]

// watchHub distributes events to streams. Each watch is in one of three states: it is *live*, and
// gets each event when the hub comes to it; it *lags*, and gets the events between its position and
// the live one from passes over the history; or it has *ended*.
//
// One goroutine (distribute) serves the live ones, and another (catchUp) those that lag. Both read
// a stretch of the history, from the ring or the database, without a lock, and put its events into
// the queues of the streams that have room. A watch whose stream has none lags from there on.
//
// INVARIANT: a stream's queue, in order, has all that each of its watches is to get up to the
// watch's position, and nothing of a revision without the rest of it, unless watch.cut is set.
type watchHub struct {
	store  *Store
	limits *watchLimits
	ring   *ring
	// published and behind wake the two goroutines.
	published, behind chan struct{}

	mu struct {
		sync.Mutex
		index *spans.Index[interest]
		// live is the next event for the live watches.
		live position
		// cut are live watches that have a part of the revision of live.
		cut     []*watch
		streams map[*WatchStream]struct{}
		// open counts watches, lagging those that lag, and previous those that want what keys were
		// before.
		open, lagging, previous int
		// hungry are streams that have room, and watches that lag. pass counts the passes over the
		// history, and from is where the one that runs began.
		hungry []*WatchStream
		pass   uint32
		from   position
		// offered counts what was done since others had the lock.
		offered int
		// asking are streams that wait until they have everything up to a revision.
		asking []*WatchStream
		// failed is why the hub has ended; nil while it runs.
		failed error
	}
}

func newWatchHub(s *Store, head uint64) *watchHub {
	limits := s.config.watch
	if limits == nil {
		limits = &usualWatchLimits
	}
	h := &watchHub{store: s, limits: limits, ring: &ring{limits: limits},
		published: make(chan struct{}, 1), behind: make(chan struct{}, 1)}
	h.ring.reset(head)
	h.mu.index = spans.New[interest]()
	h.mu.live = position{revision: head + 1}
	h.mu.streams = map[*WatchStream]struct{}{}
	return h
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// publish adds the events of an application. It waits for no watcher.
func (h *watchHub) publish(added []revisionEvents, head uint64) {
	if len(added) > 0 {
		h.ring.publish(added, head)
		poke(h.published)
	}
}

// reset goes on after the state was replaced: from the database.
func (h *watchHub) reset(head uint64) {
	h.ring.reset(head)
	poke(h.published)
}

// close ends the hub. Its goroutines end with the store's context.
func (h *watchHub) close() { h.fail(ErrClosed) }

func (h *watchHub) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.failed != nil {
		return
	}
	h.mu.failed = err
	for s := range h.mu.streams {
		poke(s.ready)
	}
}

func (h *watchHub) counts() (streams, open, lagging int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.mu.streams), h.mu.open, h.mu.lagging
}

// run calls step until it has nothing more to do, whenever it is woken, until the store is closed.
func (h *watchHub) run(ctx context.Context, wake <-chan struct{}, step func() (bool, error)) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-wake:
		}
		for more := true; more; {
			var err error
			if more, err = step(); err != nil {
				if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
					h.store.config.Logger.Error("watching "+h.store.config.Name+
						" has failed, and every watcher ends", "error", err)
				}
				h.fail(err)
				return
			}
			more = more && ctx.Err() == nil
		}
	}
}

// distribute serves the live watches.
func (h *watchHub) distribute(ctx context.Context) { h.run(ctx, h.published, h.distributeSome) }

func (h *watchHub) distributeSome() (more bool, err error) {
	h.mu.Lock()
	live, previous := h.mu.live, h.mu.previous > 0
	h.mu.Unlock()
	st, err := h.read(live, previous)
	var compacted *CompactedError
	switch {
	case errors.As(err, &compacted):
		h.endLive(compacted.Revision)
		return true, nil
	case err != nil || st.next == live:
		return false, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.offered = 0
	at := position{number: st.first}
	for i, one := range st.revisions {
		if !st.previous && h.mu.previous > 0 {
			// A watch that has come meanwhile wants more than was read.
			return true, nil
		}
		at.revision = one.revision
		for n := range one.events {
			h.offerAll(&one.events[n], at, st.piece, false)
			at.number++
		}
		at.number = 0
		if h.mu.live = (position{revision: one.revision + 1}); i == len(st.revisions)-1 {
			break
		}
		h.pauseLocked()
	}
	if h.mu.live = st.next; st.piece && st.next.number == 0 {
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

// read returns the stretch of the history from a position on.
func (h *watchHub) read(from position, previous bool) (stretch, error) {
	st, head, ok := h.ring.read(from)
	if ok {
		return st, nil
	}
	return h.store.readStretch(from, head, previous)
}

// pauseLocked lets others have the lock, if it was held for long.
func (h *watchHub) pauseLocked() {
	if h.mu.offered < h.limits.offersAtOnce {
		return
	}
	h.mu.offered = 0
	h.mu.Unlock()
	h.mu.Lock()
}

// offerAll offers an event to those of its key that are live, or take part in the pass.
func (h *watchHub) offerAll(e *Event, at position, piece, pass bool) {
	h.mu.index.Visit(e.KV.Key, func(entry *interestEntry) {
		list := entry.Value.live
		if pass {
			list = entry.Value.lagging
		}
		// Backwards, since a watch without room leaves the list, and the last takes its place.
		for i := len(list) - 1; i >= 0; i-- {
			w := list[i]
			if !at.before(w.next) && (!pass || w.pass == h.mu.pass && !w.next.before(h.mu.from)) {
				h.offerLocked(w, e, at, piece)
			}
		}
	})
}

// offerLocked puts an event into the queue of a watch's stream. If that has no room the watch lags
// from here on, and the answer is false. What began with a revision gets all of it, unless that
// comes in pieces.
func (h *watchHub) offerLocked(w *watch, e *Event, at position, piece bool) bool {
	h.mu.offered++
	if w.noPut && !e.Deleted() || w.noDelete && e.Deleted() {
		return true
	}
	s := w.stream
	if s.bytes >= h.boundLocked() && (piece || w.last != at.revision) {
		if !piece {
			at.number = 0
		}
		h.parkLocked(w, at)
		return false
	}
	event := *e
	if !w.previous {
		event.Previous = nil
	}
	if w.cut && at.revision > w.last {
		h.markLocked(w)
	}
	if w.last = at.revision; piece && !w.cut {
		if w.cut = true; w.state == stateLive {
			h.mu.cut = append(h.mu.cut, w)
		}
	}
	s.push(queued{w, event}, event.size())
	return true
}

// markLocked says that the revision of which a watch has a part ends with what it has.
func (h *watchHub) markLocked(w *watch) {
	w.cut = false
	w.stream.push(queued{watch: w}, 0)
}

// boundLocked is what a stream may have in its queue before its watches lag.
func (h *watchHub) boundLocked() int {
	l := h.limits
	return min(l.queueMost, max(l.queueLeast, l.queueBudget/max(1, len(h.mu.streams))))
}

// endLive ends the live watches that would need events below the revision at which the history
// starts: a snapshot was installed that has these no more.
func (h *watchHub) endLive(compacted uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	from := h.mu.live
	h.mu.live, h.mu.cut = position{revision: compacted}, nil
	for s := range h.mu.streams {
		for _, w := range s.watches {
			if w.state == stateLive && max(w.next.revision, from.revision) < compacted {
				h.endLocked(w, compacted)
			}
		}
	}
	h.tellAskingLocked()
}

// tellAskingLocked wakes the streams that have what they asked for.
func (h *watchHub) tellAskingLocked() {
	h.mu.asking = slices.DeleteFunc(h.mu.asking, func(s *WatchStream) bool {
		told := s.closed || len(s.lagging) == 0 && h.mu.live.revision >= s.asked
		if told {
			s.asks = false
			poke(s.ready)
		}
		return told
	})
}
