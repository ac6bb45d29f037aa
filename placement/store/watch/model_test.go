package watch

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// smallLimits make everything that happens with much happen with little.
var smallLimits = Limits{
	RecentEvents: 3, RecentBytes: 1 << 20, StretchEvents: 2, StretchBytes: 1 << 20,
	QueueBudget: 600, QueueLeast: 150, QueueMost: 600, OffersAtOnce: 2, JoinEvents: 1,
	NearRevisions: 3,
}

// watched is a watch of a stream, and what it has got.
type watched struct {
	id   int64
	from uint64
	o    Options
	got  []Event
	upTo uint64
	// compacted is the revision that was compacted when the watch began.
	compacted uint64
	ended     uint64
	progress  uint64
}

func (w *watched) wants(e Event) bool {
	return e.KV.ModRevision >= w.from && w.o.Span.Contains(e.KV.Key) &&
		(e.Deleted() && !w.o.NoDelete || !e.Deleted() && !w.o.NoPut)
}

// check compares what the watch has got with what has happened.
func (w *watched) check(t fataler, f *fakeState, complete bool) {
	t.Helper()
	var want []Event
	for _, e := range f.events {
		if w.wants(e) {
			want = append(want, e)
		}
	}
	if len(w.got) > len(want) || complete && len(w.got) < len(want) {
		t.Fatalf("watch %d of %v from %d got %d events, want %d", w.id, w.o.Span, w.from, len(w.got),
			len(want))
	}
	for i, e := range w.got {
		switch before := want[i].Previous; {
		case !proto.Equal(e.KV, want[i].KV):
			t.Fatalf("event %d of watch %d of %v from %d: %v, want %v", i, w.id, w.o.Span, w.from, e.KV,
				want[i].KV)
		case !w.o.Previous && e.Previous != nil:
			t.Fatalf("watch %d got what %q was before, unasked", w.id, e.KV.Key)
		case e.Previous != nil && e.KV.ModRevision <= w.compacted:
			t.Fatalf("watch %d, which began when %d was compacted, got what %q was before revision %d",
				w.id, w.compacted, e.KV.Key, e.KV.ModRevision)
		case w.o.Previous && (e.Previous != nil || e.KV.ModRevision > f.compacted) &&
			!proto.Equal(e.Previous, before):
			t.Fatalf("before %v there was %v, the event says %v", e.KV, before, e.Previous)
		}
	}
	for _, e := range want[len(w.got):] {
		if e.KV.ModRevision <= max(w.upTo, w.progress) {
			t.Fatalf("watch %d of %v was told that it has everything up to %d, %d, without %v", w.id,
				w.o.Span, w.upTo, w.progress, e.KV)
		}
	}
	if n := len(w.got); n > 0 && w.got[n-1].KV.ModRevision > w.upTo {
		r, size := w.got[n-1].KV.ModRevision, 0
		for _, e := range f.events {
			if e.KV.ModRevision == r {
				size++
			}
		}
		switch {
		case size <= smallLimits.RecentEvents-1:
			t.Fatalf("watch %d got a part of revision %d, which has only %d events", w.id, r, size)
		case w.upTo != r-1:
			t.Fatalf("watch %d has a part of revision %d, and was told that it has all up to %d", w.id, r,
				w.upTo)
		}
	}
}

// modelStream is a stream with what its watches have got.
type modelStream struct {
	*Stream
	of      *watchedState
	watches []*watched
	next    int64
}

// untold are the events as they are published when it was not read what their keys were before.
func untold(events []Event) []Event {
	events = slices.Clone(events)
	for i := range events {
		e := &events[i]
		e.Untold, e.Previous = e.Previous != nil, nil
	}
	return events
}

var keyNames = []string{"a", "aa", "ab", "b", "c", "ca"}

func (s *modelStream) add(t *rapid.T) {
	w := &watched{id: s.next, compacted: s.of.Compacted()}
	s.next++
	start := rapid.SampledFrom(keyNames).Draw(t, "start")
	w.o = Options{Span: keys.Point([]byte(start)), Previous: rapid.Bool().Draw(t, "previous")}
	switch rapid.IntRange(0, 3).Draw(t, "kind of span") {
	case 0:
		w.o.Span = keys.PrefixSpan([]byte(start))
	case 1:
		end := rapid.SampledFrom(keyNames).Draw(t, "end")
		w.o.Span = keys.Span{Start: []byte(start), End: []byte(end)}
	}
	switch rapid.IntRange(0, 5).Draw(t, "filter") {
	case 0:
		w.o.NoPut = true
	case 1:
		w.o.NoDelete = true
	}
	newest := s.of.head()
	if rapid.IntRange(0, 2).Draw(t, "from now on") > 0 {
		w.o.From = uint64(rapid.IntRange(1, int(newest)+3).Draw(t, "from"))
	}
	head, err := s.Add(w.id, w.o)
	switch {
	case w.o.Span.Empty():
		if !errors.Is(err, ErrEmptySpan) {
			t.Fatalf("a watch of nothing: %v", err)
		}
		return
	case err != nil:
		t.Fatal(err)
	case head != newest:
		t.Fatalf("a new watch was told revision %d, the newest is %d", head, newest)
	}
	if w.from = w.o.From; w.from == 0 {
		w.from = head + 1
	}
	s.watches = append(s.watches, w)
}

// take takes what there is, and checks it.
func (s *modelStream) take(t fataler) {
	taken, err := s.Take()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range taken {
		i := slices.IndexFunc(s.watches, func(w *watched) bool { return w.id == d.ID })
		if i < 0 || s.watches[i].ended > 0 {
			t.Fatalf("a delivery to watch %d, which is not there or has ended", d.ID)
		}
		w := s.watches[i]
		w.got = append(w.got, d.Events...)
		w.upTo, w.ended = d.Revision, d.Compacted
		w.check(t, s.of.fakeState, false)
		if next := max(w.from, w.upTo+1); w.ended > 0 &&
			(w.ended > s.of.compacted || next >= w.ended && w.from >= w.ended) {
			t.Fatalf("watch %d from %d, which has all up to %d, was told that %d is compacted", w.id,
				w.from, w.upTo, w.ended)
		}
	}
	revision, ok := s.Progress(0)
	for _, w := range s.watches {
		if !ok || w.ended > 0 {
			continue
		}
		if w.progress = revision; w.from > revision+1 {
			t.Fatalf("progress %d was told of watch %d, which begins at %d", revision, w.id, w.from)
		}
		w.check(t, s.of.fakeState, false)
	}
}

// finish takes until every watch has everything.
func (s *modelStream) finish(t fataler) {
	s.watches = slices.DeleteFunc(s.watches, func(w *watched) bool {
		future := w.from > s.of.head()+1
		if future {
			w.check(t, s.of.fakeState, true)
			if err := s.Remove(w.id); err != nil {
				t.Fatal(err)
			}
		}
		return future
	})
	deadline := time.After(20 * time.Second)
	for {
		s.take(t)
		if _, ok := s.Progress(s.of.head()); ok {
			break
		}
		select {
		case <-s.Ready():
		case <-deadline:
			t.Fatalf("a stream does not get everything up to %d", s.of.head())
		}
	}
	for _, w := range s.watches {
		w.check(t, s.of.fakeState, w.ended == 0)
	}
}

func drawChanges(t *rapid.T) []change {
	var changes []change
	for _, key := range rapid.SliceOfNDistinct(rapid.SampledFrom(keyNames), 1, len(keyNames),
		rapid.ID[string]).Draw(t, "keys") {
		changes = append(changes, change{key, rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "to")})
	}
	return changes
}

// Whatever happens, and however late a stream takes it: each watch gets all of its events once and
// in order, no revision is cut that is not too large, and no progress is told that was not made;
// watches of every kind, from the past and the future, over compactions and states that were
// replaced by newer ones.
func TestStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		state := newFakeState()
		of := &watchedState{state, New(Config{History: state, Head: state.revision,
			Limits: &smallLimits})}
		defer of.hub.Close(errStopped)
		var streams []*modelStream
		for range 3 {
			s, err := of.hub.NewStream()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			streams = append(streams, &modelStream{Stream: s, of: of})
		}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			s := rapid.SampledFrom(streams).Draw(t, "stream")
			switch action := rapid.IntRange(0, 23).Draw(t, "action"); {
			case action == 0: // a newer state replaces this one
				for range rapid.IntRange(0, 4).Draw(t, "missed") {
					state.commit(drawChanges(t)...)
				}
				if rapid.Bool().Draw(t, "compacted") {
					state.compact(state.head())
				}
				of.hub.Reset(state.head())
			case action == 1:
				state.compact(uint64(rapid.IntRange(1, int(state.head())).Draw(t, "compact")))
			case action <= 5:
				s.add(t)
			case action == 6 && len(s.watches) > 0:
				i := rapid.IntRange(0, len(s.watches)-1).Draw(t, "watch")
				if err := s.Remove(s.watches[i].id); err != nil {
					t.Fatal(err)
				}
				s.watches = slices.Delete(s.watches, i, i+1)
			case action <= 9:
				s.take(t)
			default:
				var added []Revision
				for range rapid.IntRange(1, 2).Draw(t, "revisions") {
					if one := state.commit(drawChanges(t)...); len(one.Events) > 0 {
						one.TooMany = len(one.Events) > smallLimits.RecentEvents
						if one.TooMany {
							one.Events = nil
						}
						if rapid.Bool().Draw(t, "untold") {
							one.Events = untold(one.Events)
						}
						added = append(added, one)
					}
				}
				of.hub.Publish(added, state.head())
			}
		}
		for _, s := range streams {
			s.finish(t)
		}
		checkHub(t, of.hub)
	})
}

// checkHub verifies how the hub's lists hang together.
func checkHub(t fataler, h *Hub) {
	h.mu.Lock()
	defer h.mu.Unlock()
	open, lagging, spans := 0, 0, map[*interestEntry]int{}
	for s := range h.mu.streams {
		open += len(s.watches)
		lagging += len(s.lagging)
		for i, w := range s.lagging {
			if int(w.lagAt) != i || w.state != stateLagging {
				t.Fatalf("watch %d is %d at place %d of those that lag", w.id, w.state, i)
			}
		}
		for _, w := range s.watches {
			if (w.entry == nil) != (w.state == stateEnded) {
				t.Fatalf("watch %d is %d and has the entry %v", w.id, w.state, w.entry)
			}
			if w.entry == nil {
				continue
			}
			spans[w.entry]++
			if list := *w.entry.Value.list(w.state); w.state == stateLive && w.at < 0 ||
				w.at >= 0 && list[w.at] != w {
				t.Fatalf("watch %d is not at place %d of its list", w.id, w.at)
			}
		}
	}
	if open != h.mu.open || lagging != h.mu.lagging || len(spans) != h.mu.index.Len() {
		t.Fatalf("%d watches of %d spans, %d lag; the hub counts %d, %d and %d", open, len(spans),
			lagging, h.mu.open, h.mu.index.Len(), h.mu.lagging)
	}
	for e, n := range spans {
		if e.Value.all != n {
			t.Fatalf("a span has %d watches, and counts %d", n, e.Value.all)
		}
	}
}

// A hub whose history cannot be read ends with the error, tells its owner once, and its streams
// return the error.
func TestHubFails(t *testing.T) {
	state := newFakeState()
	failed := make(chan error, 2)
	hub := New(Config{History: state, Head: state.revision, Limits: &smallLimits,
		Failed: func(err error) { failed <- err }})
	stream, err := hub.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	state.commit(change{"a", "x"})
	broken := errors.New("broken")
	state.fail(broken)
	if _, err := stream.Add(1, Options{Span: keys.PrefixSpan(nil), From: 1}); err != nil {
		t.Fatal(err)
	}
	hub.Reset(state.head())
	if _, err := stream.Next(t.Context()); !errors.Is(err, broken) {
		t.Errorf("a stream of a hub that has failed: %v", err)
	}
	if _, err := hub.NewStream(); !errors.Is(err, broken) {
		t.Errorf("a new stream of a hub that has failed: %v", err)
	}
	if err := <-failed; !errors.Is(err, broken) {
		t.Errorf("the owner was told %v", err)
	}
	hub.Close(errStopped)
}
