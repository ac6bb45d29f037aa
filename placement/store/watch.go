package store

import (
	"context"
	"errors"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// newHub makes the hub, from the store's loaded state.
func (s *Store) newHub() *watch.Hub {
	return watch.New(watch.Config{History: history{s}, Head: s.Revision(),
		MaxWatches: s.config.MaxWatchers, Limits: s.config.watchLimits(), Failed: func(err error) {
			if !errors.Is(err, command.ErrClosed) {
				s.config.Logger.Error("watching "+s.config.Name+" has failed, and every watcher ends",
					"error", err)
			}
		}})
}

// history adapts the Store to watch.History.
type history struct{ *Store }

// Changes implements watch.History.
func (h history) Changes(
	from watch.Position, previous bool, visit func(*watch.Event, watch.Position) bool,
) (compacted uint64, err error) {
	err = h.ReadState(func(r *tables.Reader) error { return r.Changes(from, previous, visit) })
	var gone *command.CompactedError
	if errors.As(err, &gone) {
		return gone.Revision, nil
	}
	return 0, err
}

// NewWatchStream returns a stream without watches of this member's keys. The caller closes it. Its
// methods return ErrClosed once the store is closed.
func (s *Store) NewWatchStream() (*watch.Stream, error) { return s.hub.NewStream() }

// Watcher delivers the events of a span of keys, each once and in order: a stream with one watch.
// One goroutine uses it; any goroutine may call Close.
type Watcher struct {
	stream *watch.Stream
	// delivered is the revision up to which all events were delivered.
	delivered uint64
	// ended is the error after which no more events come.
	ended error
	once  sync.Once
}

// Batch is the result of one Next.
type Batch struct {
	Events []watch.Event
	// Revision is the revision up to which all events have been delivered: a new watcher can
	// continue after it. It is lower than the revision of the last events if that revision is too
	// large for one batch. The next batches then bring the rest; the last of these may have no
	// events.
	Revision uint64
}

// Watch starts a watcher of all keys with a prefix, from the revision after `after` on, which this
// member may not have reached yet. The caller closes it.
func (s *Store) Watch(prefix []byte, after uint64) (*Watcher, error) {
	stream, err := s.NewWatchStream()
	if err != nil {
		return nil, err
	}
	_, err = stream.Add(0,
		watch.Options{Span: keys.PrefixSpan(prefix), From: after + 1, Previous: true})
	if err != nil {
		stream.Close()
		return nil, err
	}
	return &Watcher{stream: stream, delivered: after}, nil
}

// EndWatches ends all watches as Close does, with ErrClosed. It is for a store whose group has failed:
// nothing is applied any more.
func (s *Store) EndWatches() { s.hub.End(command.ErrClosed) }

// Close ends the watcher. A Next that waits returns watch.ErrClosed.
func (w *Watcher) Close() { w.once.Do(w.stream.Close) }

// Next waits for events and returns them. After a CompactedError, undelivered events are lost: the
// caller reads the keys again and watches from that revision.
func (w *Watcher) Next(ctx context.Context) (Batch, error) {
	if w.ended != nil {
		return Batch{}, w.ended
	}
	taken, err := w.stream.Next(ctx)
	if err != nil {
		return Batch{}, err
	}
	d := taken[0]
	if d.Compacted > 0 {
		w.ended = &command.CompactedError{Revision: d.Compacted}
		if len(d.Events) == 0 {
			return Batch{}, w.ended
		}
	}
	w.delivered = max(w.delivered, d.Revision)
	return Batch{Events: d.Events, Revision: d.Revision}, nil
}

// Progress returns the revision up to which all events have been delivered. It must not be called
// concurrently with Next.
func (w *Watcher) Progress() uint64 {
	if revision, ok := w.stream.ProgressOf(0); ok {
		w.delivered = max(w.delivered, revision)
	}
	return w.delivered
}
