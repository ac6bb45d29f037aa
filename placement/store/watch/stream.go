package watch

import (
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/keys"
)

var (
	// ErrClosed is the error of a closed stream.
	ErrClosed = errors.New("the stream of watches is closed")
	// ErrTooMany means that the hub has as many watches as it may have.
	ErrTooMany = errors.New("too many watchers")
	// ErrEmptySpan is the error of a watch whose span holds no key.
	ErrEmptySpan = errors.New("the span of a watch holds no key")
	// ErrExists means that the stream has a watch with this id already.
	ErrExists = errors.New("the stream has a watch of that id")
	// ErrUnknown means that the stream has no watch with this id.
	ErrUnknown = errors.New("the stream has no watch of that id")
)

// Options are the options of a watch.
type Options struct {
	// Span is the watched span of keys. It is copied.
	Span keys.Span
	// From is the first revision whose events are delivered, which may lie in the future; 0 means
	// the next revision.
	From uint64
	// Previous is set if events need the previous values of their keys.
	Previous bool
	// NoPut and NoDelete leave out events of a kind.
	NoPut, NoDelete bool
}

// Delivery is what one Take returns for one watch.
type Delivery struct {
	ID int64
	// Events are in order. The slice belongs to the caller; the events' contents are shared and
	// must not be changed.
	Events []Event
	// Revision is the revision up to which the watch has all its events. It is lower than the last
	// event's revision if that revision is too large for one delivery. The next deliveries bring
	// the rest; the last of these may have no events.
	Revision uint64
	// Compacted is not 0 if the watch has ended because the next events that it needs are
	// compacted. It is the first revision of the history.
	Compacted uint64
}

// queued is an event for a watch. Without a KV it means that the watch has ended, or that a
// revision that the watch got in part is complete.
type queued struct {
	watch *watch
	event Event
}

const (
	queuedSize = 32
	// A stream keeps slices of so many elements from one Take to the next.
	keptElements = 256
)

// Stream is any number of watches whose events one goroutine takes. Events that are not taken yet
// wait in a bounded queue, and further ones in the history, so no stream delays another. Add,
// Remove and Close may be called from any goroutine.
type Stream struct {
	hub   *Hub
	ready chan struct{}

	// Hub.mu guards all fields below, except deliveries and spare, which belong to the goroutine
	// that takes.

	watches map[int64]*watch
	queue   []queued
	bytes   int
	// lagging are the stream's lagging watches. hungry is set if the stream is in Hub.hungry, or
	// part of a pass.
	lagging []*watch
	hungry  bool
	// asks is set while the stream is in Hub.asking, until its watches have everything below asked.
	asks  bool
	asked uint64
	// latest is an upper bound of the revisions at which watches are yet to begin.
	latest uint64
	closed bool

	deliveries []Delivery
	spare      []queued
}

// NewStream returns a stream without watches. The caller closes it.
func (h *Hub) NewStream() (*Stream, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.mu.failed != nil {
		return nil, h.mu.failed
	}
	stream := &Stream{hub: h, ready: make(chan struct{}, 1), watches: map[int64]*watch{}}
	h.mu.streams[stream] = struct{}{}
	return stream, nil
}

// Add begins a watch, under an id that is new to the stream. revision is the newest revision at
// that moment. A watch that begins at a compacted revision ends at once, with a Delivery that says
// so.
func (s *Stream) Add(id int64, o Options) (revision uint64, err error) {
	h := s.hub
	if o.Span.Empty() {
		return 0, fmt.Errorf("%w: %v", ErrEmptySpan, o.Span)
	}
	if o.From == 0 {
		h.replacing.RLock()
		defer h.replacing.RUnlock()
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.mu.failed != nil:
		return 0, h.mu.failed
	case s.closed:
		return 0, ErrClosed
	case s.watches[id] != nil:
		return 0, fmt.Errorf("%w: %d", ErrExists, id)
	case h.mu.open >= h.maxWatches:
		return 0, fmt.Errorf("%w: this member has %d", ErrTooMany, h.mu.open)
	}
	head := h.ring.head()
	from := o.From
	if from == 0 {
		from = head + 1
	}
	w := &watch{stream: s, id: id, at: -1, lagAt: -1, entry: h.mu.index.Entry(o.Span),
		previous: o.Previous, noPut: o.NoPut, noDelete: o.NoDelete}
	w.entry.Value.all++
	s.watches[id] = w
	h.mu.open++
	if w.previous {
		h.previous.Add(1)
	}
	s.latest = max(s.latest, from)
	h.lagLocked(w, Position{Revision: from})
	compacted := h.history.Compacted()
	if from < compacted {
		h.endLocked(w, compacted)
		return head, nil
	}
	w.late = from == compacted
	if !h.joinLocked(w) {
		h.hungerLocked(s)
	}
	return head, nil
}

// Remove ends a watch. Its events that were not taken yet are dropped.
func (s *Stream) Remove(id int64) error {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	w := s.watches[id]
	if w == nil {
		return fmt.Errorf("%w: %d", ErrUnknown, id)
	}
	h.dropLocked(w)
	return nil
}

// Close ends all watches, and a Next that waits.
func (s *Stream) Close() {
	h := s.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, w := range s.watches {
		h.dropLocked(w)
	}
	delete(h.mu.streams, s)
	s.queue, s.bytes = nil, 0
	if s.asks {
		h.tellAskingLocked()
	}
	poke(s.ready)
}
