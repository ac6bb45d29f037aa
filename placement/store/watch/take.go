package watch

import "context"

// push appends to the queue.
func (s *Stream) push(q queued, size int) {
	s.queue = append(s.queue, q)
	s.bytes += size + queuedSize
	poke(s.ready)
}

// unlistLagging takes the stream's lagging watches off the lists of their spans.
func (s *Stream) unlistLagging() {
	for _, w := range s.lagging {
		w.unlist()
	}
}

// Ready returns a channel that receives when Take may have deliveries, or when Progress may have
// reached the revision that it was asked for. One goroutine receives from it.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// Next waits for deliveries, and returns them like Take.
func (s *Stream) Next(ctx context.Context) ([]Delivery, error) {
	for {
		if taken, err := s.Take(); err != nil || len(taken) > 0 {
			return taken, err
		}
		select {
		case <-s.ready:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Take returns the waiting deliveries, at most one for each watch, without blocking. The result is
// valid until the next call, except for the events. ErrClosed means that the stream is closed; once
// the hub has ended, the error is Hub.Close's reason, or the failure of the history.
func (s *Stream) Take() ([]Delivery, error) {
	s.spare, s.deliveries = emptied(s.spare), emptied(s.deliveries)
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mu.failed != nil:
		return nil, h.mu.failed
	case s.closed:
		return nil, ErrClosed
	case len(s.queue) == 0:
		return nil, nil
	}
	taken := s.queue
	s.queue, s.spare, s.bytes = s.spare, taken, 0
	h.hungerLocked(s)
	return s.group(taken), nil
}

// emptied returns an empty slice for new elements, in place of a slice whose elements are no longer
// needed.
func emptied[T any](list []T) []T {
	if cap(list) > keptElements {
		return nil
	}
	clear(list)
	return list[:0]
}

// group groups the queued events by watch.
func (s *Stream) group(taken []queued) []Delivery {
	// First count the events of each watch, as capacities; then fill in the events.
	var counts []int32
	total := 0
	for _, q := range taken {
		w := q.watch
		if w.state == stateRemoved {
			continue
		}
		if w.slot == 0 {
			d := Delivery{ID: w.id, Revision: w.next.Revision - 1}
			if w.state == stateEnded {
				d.Compacted, d.Revision = w.next.Revision, 0
			}
			if d.Revision = max(d.Revision, w.last); w.cut {
				d.Revision = w.last - 1
			}
			s.deliveries = append(s.deliveries, d)
			counts = append(counts, 0)
			w.slot = int32(len(counts))
		}
		if q.event.KV != nil {
			counts[w.slot-1]++
			total++
		}
	}
	events := make([]Event, total)
	for i := range s.deliveries {
		s.deliveries[i].Events = events[:0:counts[i]]
		events = events[counts[i]:]
	}
	for _, q := range taken {
		if w := q.watch; w.slot > 0 && q.event.KV != nil {
			d := &s.deliveries[w.slot-1]
			d.Events = append(d.Events, q.event)
		}
	}
	for _, q := range taken {
		q.watch.slot = 0
	}
	return s.deliveries
}

// Progress returns a revision up to which every running watch of the stream has all its events. ok
// is false if this is not yet so for the revision atLeast, if the queue is not empty, or if a watch
// begins later. Ready tells when to ask again.
func (s *Stream) Progress(atLeast uint64) (revision uint64, ok bool) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	live := h.mu.live.Revision
	if s.latest > live {
		s.latest = 0
		for _, w := range s.watches {
			if w.state == stateLive {
				s.latest = max(s.latest, w.next.Revision)
			}
		}
	}
	if len(s.queue) == 0 && len(s.lagging) == 0 && live > atLeast && live >= s.latest {
		return live - 1, true
	}
	if s.asked = max(atLeast+1, s.latest); !s.asks && !s.closed {
		s.asks = true
		h.mu.asking = append(h.mu.asking, s)
	}
	return 0, false
}

// ProgressOf is like Progress for one watch, whatever the others have. Ready does not tell when to
// ask again.
func (s *Stream) ProgressOf(id int64) (revision uint64, ok bool) {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watches[id]
	live := h.mu.live.Revision
	if w == nil || w.state != stateLive || len(s.queue) > 0 || w.next.Revision > live {
		return 0, false
	}
	return live - 1, true
}

// Head is the newest revision. The watches may not have all its events yet.
func (s *Stream) Head() uint64 { return s.hub.ring.head() }
