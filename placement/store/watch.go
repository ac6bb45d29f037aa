package store

import (
	"context"
	"sync"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
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

// Watcher delivers the events of a span of keys, each once and in order: a stream with one watch.
// It is for one goroutine, but for Close.
type Watcher struct {
	stream *WatchStream
	// delivered is up to where everything was.
	delivered uint64
	// ended is why nothing more comes.
	ended error
	once  sync.Once
}

// Batch is what a watcher delivers at a time.
type Batch struct {
	Events []Event
	// Revision says that all events up to it have been delivered: a new watcher can go on after it.
	// It is lower than that of the last events if the others of their revision, which is too large
	// to be had at once, come in the next batches; the last of these may be without events.
	Revision uint64
}

// Watch starts a watcher of all keys with a prefix, from the revision after the given one on, which
// may lie in the future of this member. The caller closes it.
func (s *Store) Watch(prefix []byte, after uint64) (*Watcher, error) {
	stream, err := s.NewWatchStream()
	if err != nil {
		return nil, err
	}
	_, err = stream.Add(0,
		WatchOptions{Span: keys.PrefixSpan(prefix), From: after + 1, Previous: true})
	if err != nil {
		stream.Close()
		return nil, err
	}
	return &Watcher{stream: stream, delivered: after}, nil
}

// Close ends the watcher, also a Next that waits.
func (w *Watcher) Close() { w.once.Do(w.stream.Close) }

// Next waits for events and returns them. A CompactedError says that events that were not delivered
// are gone: read the keys anew and watch from there.
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
		w.ended = &CompactedError{Revision: d.Compacted}
		if len(d.Events) == 0 {
			return Batch{}, w.ended
		}
	}
	w.delivered = max(w.delivered, d.Revision)
	return Batch{Events: d.Events, Revision: d.Revision}, nil
}

// Progress returns the revision up to which everything has been delivered. Not to be called beside
// Next.
func (w *Watcher) Progress() uint64 {
	if revision, ok := w.stream.ProgressOf(0); ok {
		w.delivered = max(w.delivered, revision)
	}
	return w.delivered
}
