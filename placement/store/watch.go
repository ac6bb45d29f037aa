package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

const (
	// What the hub keeps in memory: the newest events, for all watchers together.
	maxRecentEvents = 8192
	maxRecentBytes  = 8 << 20
	// What one Next returns at most, and how many events it looks at in the database before it
	// looks up again.
	maxBatchEvents  = 512
	maxBatchBytes   = 1 << 20
	maxEventsLooked = 4096
)

// Event is one change of one key. It is shared: do not change it.
type Event struct {
	// KV is the key as the change left it. Version 0: it was deleted, and the rest of KV but Key
	// and ModRevision is empty.
	KV *storepb.KeyValue
	// Previous is the key as it was before; nil if it did not exist, or if that has been compacted.
	Previous *storepb.KeyValue
}

// Deleted says whether the change is a deletion.
func (e Event) Deleted() bool { return e.KV.Version == 0 }

func (e Event) size() int {
	n := len(e.KV.Key) + len(e.KV.Value) + 64
	if e.Previous != nil {
		n += len(e.Previous.Key) + len(e.Previous.Value)
	}
	return n
}

// revisionEvents is everything that happened at one revision.
type revisionEvents struct {
	revision uint64
	events   []Event
	// tooMany: they are more than the hub keeps, and are in the database alone.
	tooMany bool
}

// position is the next event that a watcher has not seen.
type position struct {
	revision uint64
	number   uint32
}

// watchHub has the newest events in memory, and wakes watchers.
type watchHub struct {
	mu struct {
		sync.Mutex
		// head is the newest revision; recent has all events from revision floor on, one element
		// for each revision.
		head, floor   uint64
		recent        []revisionEvents
		events, bytes int
		// waiting watchers have seen everything up to head; each has a channel that is closed to wake it.
		waiting map[*Watcher]chan struct{}
		open    int
		closed  bool
	}
}

func newWatchHub(head uint64) *watchHub {
	h := &watchHub{}
	h.mu.waiting = map[*Watcher]chan struct{}{}
	h.mu.head, h.mu.floor = head, head+1
	return h
}

// publish adds the events of an application. Watchers that none of them concerns are moved on
// without being woken.
func (h *watchHub) publish(added []revisionEvents, head uint64) {
	if len(added) == 0 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.head = head
	for _, r := range added {
		if r.tooMany {
			h.mu.floor = r.revision + 1
			h.mu.recent, h.mu.events, h.mu.bytes = nil, 0, 0
			continue
		}
		h.mu.recent = append(h.mu.recent, r)
		h.mu.events += len(r.events)
		for _, e := range r.events {
			h.mu.bytes += e.size()
		}
	}
	for len(h.mu.recent) > 0 && (h.mu.events > maxRecentEvents || h.mu.bytes > maxRecentBytes) {
		oldest := h.mu.recent[0]
		h.mu.recent[0] = revisionEvents{}
		h.mu.recent = h.mu.recent[1:]
		h.mu.floor = oldest.revision + 1
		h.mu.events -= len(oldest.events)
		for _, e := range oldest.events {
			h.mu.bytes -= e.size()
		}
	}
	for w, wake := range h.mu.waiting {
		if w.next.revision > head {
			continue // it waits for a revision yet to come
		}
		if concerns(w.span, added) {
			delete(h.mu.waiting, w)
			close(wake)
		} else {
			w.next = position{revision: head + 1}
		}
	}
}

func concerns(span keys.Span, added []revisionEvents) bool {
	for _, r := range added {
		if r.tooMany {
			return true
		}
		for _, e := range r.events {
			if span.Contains(e.KV.Key) {
				return true
			}
		}
	}
	return false
}

// reset forgets all events: the state was replaced. Watchers go on from the database.
func (h *watchHub) reset(head uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.head, h.mu.floor = head, head+1
	h.mu.recent, h.mu.events, h.mu.bytes = nil, 0, 0
	h.wakeAllLocked()
}

func (h *watchHub) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.closed = true
	h.wakeAllLocked()
}

func (h *watchHub) wakeAllLocked() {
	for w, wake := range h.mu.waiting {
		delete(h.mu.waiting, w)
		close(wake)
	}
}

func (h *watchHub) watchers() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.open
}

// Watcher delivers the events of a span of keys, each once and in order. It is for one goroutine,
// but for Close.
type Watcher struct {
	store *Store
	span  keys.Span
	// next is guarded by watchHub.mu while the watcher waits, and its own otherwise.
	next      position
	closeOnce sync.Once
	closed    chan struct{}
}

// Batch is what a watcher delivers at a time.
type Batch struct {
	Events []Event
	// Revision says that all events up to it have been delivered: a new watcher can go on after it.
	// It may be lower than that of the last events if the others of their revision come in the next
	// batch.
	Revision uint64
}

// Watch starts a watcher of all keys with a prefix, from the revision after the given one on. The
// caller closes it.
func (s *Store) Watch(prefix []byte, after uint64) (*Watcher, error) {
	return s.watchSpan(keys.PrefixSpan(prefix), after)
}

// watchSpan is like Watch, for any span of keys. The watcher may be behind what this member has, or
// ahead of it.
func (s *Store) watchSpan(span keys.Span, after uint64) (*Watcher, error) {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	switch {
	case s.hub.mu.closed:
		return nil, ErrClosed
	case s.hub.mu.open >= s.config.MaxWatchers:
		return nil, fmt.Errorf("%w: this member has %d", ErrTooManyWatchers, s.hub.mu.open)
	}
	s.hub.mu.open++
	return &Watcher{store: s, span: span.Clone(), next: position{revision: after + 1},
		closed: make(chan struct{})}, nil
}

// Close ends the watcher, also a Next that waits.
func (w *Watcher) Close() {
	w.closeOnce.Do(func() {
		close(w.closed)
		w.store.hub.mu.Lock()
		delete(w.store.hub.mu.waiting, w)
		w.store.hub.mu.open--
		w.store.hub.mu.Unlock()
	})
}

// Next waits for events and returns them. A CompactedError says that events that were not delivered
// are gone: read the keys anew and watch from there.
func (w *Watcher) Next(ctx context.Context) (Batch, error) {
	for {
		batch, wait, err := w.recent()
		if err != nil {
			return Batch{}, err
		}
		switch {
		case len(batch.Events) > 0:
			return batch, nil
		case wait == nil:
			if batch, err = w.stored(); err != nil || len(batch.Events) > 0 {
				return batch, err
			}
			if err := ctx.Err(); err != nil {
				return Batch{}, err
			}
			continue
		}
		select {
		case <-wait:
		case <-w.closed:
			return Batch{}, ErrClosed
		case <-ctx.Done():
			w.unpark()
			return Batch{}, ctx.Err()
		}
	}
}

func (w *Watcher) unpark() {
	h := w.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.mu.waiting, w)
}

// Progress returns the revision up to which everything has been delivered. Not to be called beside
// Next.
func (w *Watcher) Progress() uint64 { return w.next.revision - 1 }

// recent takes events from memory. If there are none to come, it parks the watcher and returns the
// channel that wakes it. Neither events nor a channel: they have to come from the database.
func (w *Watcher) recent() (batch Batch, wait <-chan struct{}, err error) {
	h := w.store.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.closed {
		return batch, nil, ErrClosed
	}
	if w.next.revision < h.mu.floor {
		return batch, nil, nil
	}
	bytes := 0
	for w.next.revision <= h.mu.head {
		all := h.mu.recent[w.next.revision-h.mu.floor].events
		for ; int(w.next.number) < len(all); w.next.number++ {
			if e := all[w.next.number]; w.span.Contains(e.KV.Key) {
				if len(batch.Events) >= maxBatchEvents || bytes >= maxBatchBytes {
					batch.Revision = w.next.revision - 1
					return batch, nil, nil
				}
				batch.Events = append(batch.Events, e)
				bytes += e.size()
			}
		}
		w.next = position{revision: w.next.revision + 1}
	}
	batch.Revision = w.next.revision - 1
	if len(batch.Events) > 0 {
		return batch, nil, nil
	}
	wake := make(chan struct{})
	h.mu.waiting[w] = wake
	return batch, wake, nil
}

// stored takes events from the database.
func (w *Watcher) stored() (batch Batch, err error) {
	err = w.store.read(func(r *reader) error {
		looked, bytes, next := 0, 0, position{revision: r.meta.Revision + 1}
		err := r.changes(w.next, func(e *Event, behind position) bool {
			if looked++; w.span.Contains(e.KV.Key) {
				batch.Events = append(batch.Events, *e)
				bytes += e.size()
			}
			if len(batch.Events) >= maxBatchEvents || bytes >= maxBatchBytes || looked >= maxEventsLooked {
				next = behind
				return false
			}
			return true
		})
		// A watcher that is ahead of this member stays where it is.
		if err == nil && (next.revision > w.next.revision || next.revision == w.next.revision &&
			next.number > w.next.number) {
			w.next = next
		}
		return err
	})
	batch.Revision = w.next.revision - 1
	return batch, err
}
