package watch

import (
	"cmp"
	"errors"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errStopped = errors.New("the history was stopped")

// fataler is what tests need of a *testing.T or *rapid.T.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
	Fatal(args ...any)
}

// change is a write of a key; no value: its deletion.
type change struct{ key, value string }

// fakeState is a naive history of keys, and what a hub is told of it.
type fakeState struct {
	mu                  sync.Mutex
	revision, compacted uint64
	// events are all that happened, in order, also what is compacted.
	events []Event
	now    map[string]*storepb.KeyValue
	err    error
}

func newFakeState() *fakeState {
	return &fakeState{revision: 1, now: map[string]*storepb.KeyValue{}}
}

// commit makes a revision of changes, and returns it.
func (f *fakeState) commit(changes ...change) Revision {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.revision++
	one := Revision{Number: f.revision}
	for _, c := range changes {
		kv := &storepb.KeyValue{Key: []byte(c.key), ModRevision: f.revision}
		before := f.now[c.key]
		if c.value == "" {
			if before == nil {
				continue
			}
			delete(f.now, c.key)
		} else {
			kv.Value, kv.Version, kv.CreateRevision = []byte(c.value), 1, f.revision
			if before != nil {
				kv.Version, kv.CreateRevision = before.Version+1, before.CreateRevision
			}
			f.now[c.key] = kv
		}
		one.Events = append(one.Events, Event{KV: kv, Previous: before})
	}
	if len(one.Events) == 0 {
		f.revision--
		return Revision{}
	}
	f.events = append(f.events, one.Events...)
	return one
}

func (f *fakeState) compact(revision uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.compacted = max(f.compacted, revision)
}

func (f *fakeState) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeState) head() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.revision
}

// Compacted implements History.
func (f *fakeState) Compacted() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.compacted
}

// Changes implements History.
func (f *fakeState) Changes(
	from Position, previous bool, visit func(*Event, Position) bool,
) (compacted uint64, err error) {
	f.mu.Lock()
	events, compacted, err := f.events, f.compacted, f.err
	f.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if from.Revision < compacted {
		return compacted, nil
	}
	first, _ := slices.BinarySearchFunc(events, from.Revision, func(e Event, r uint64) int {
		return cmp.Compare(e.KV.ModRevision, r)
	})
	at := Position{}
	for _, e := range events[first:] {
		if at.Number++; at.Revision != e.KV.ModRevision {
			at = Position{Revision: e.KV.ModRevision}
		}
		if at.Before(from) {
			continue
		}
		if !previous || at.Revision <= compacted {
			e.Previous = nil
		}
		if !visit(&e, at) {
			break
		}
	}
	return 0, nil
}

// watchedState is a state with a hub.
type watchedState struct {
	*fakeState
	hub *Hub
}

// newWatched returns an empty state with a hub that the test's end closes.
func newWatched(t *testing.T, limits *Limits, maxWatches int) *watchedState {
	state := newFakeState()
	w := &watchedState{state, New(Config{History: state, Head: state.revision, Limits: limits,
		MaxWatches: maxWatches})}
	t.Cleanup(func() { w.hub.Close(errStopped) })
	return w
}

// put writes keys at one revision, and returns it.
func (w *watchedState) put(value string, keys ...string) uint64 {
	var changes []change
	for _, key := range keys {
		changes = append(changes, change{key, value})
	}
	one := w.commit(changes...)
	w.hub.Publish([]Revision{one}, one.Number)
	return one.Number
}

// stream returns a stream that the test's end closes.
func (w *watchedState) stream(t *testing.T) *Stream {
	t.Helper()
	s, err := w.hub.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
