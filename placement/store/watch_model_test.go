package store

import (
	"errors"
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/watch"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// smallWatchLimits make everything that happens with much happen with little.
var smallWatchLimits = watch.Limits{
	RecentEvents: 3, RecentBytes: 1 << 20, StretchEvents: 2, StretchBytes: 1 << 20,
	QueueBudget: 600, QueueLeast: 150, QueueMost: 600, OffersAtOnce: 2, JoinEvents: 1,
	NearRevisions: 3,
}

// watched is a watch of a stream, and what it has got.
type watched struct {
	id   int64
	from uint64
	o    watch.Options
	got  []watch.Event
	upTo uint64
	// compacted is the revision that was compacted, on its member, when the watch began.
	compacted uint64
	ended     uint64
	progress  uint64
}

func (w *watched) wants(kv *storepb.KeyValue) bool {
	return kv.ModRevision >= w.from && w.o.Span.Contains(kv.Key) &&
		(kv.Version == 0 && !w.o.NoDelete || kv.Version > 0 && !w.o.NoPut)
}

// check compares what the watch has got with what has happened.
func (w *watched) check(t fataler, m *model, complete bool) {
	t.Helper()
	var want []*storepb.KeyValue
	for _, kv := range m.events {
		if w.wants(kv) {
			want = append(want, kv)
		}
	}
	if len(w.got) > len(want) || complete && len(w.got) < len(want) {
		t.Fatalf("watch %d of %v from %d got %d events, want %d", w.id, w.o.Span, w.from, len(w.got),
			len(want))
	}
	for i, e := range w.got {
		if !proto.Equal(e.KV, want[i]) {
			t.Fatalf("event %d of watch %d of %v from %d: %v, want %v", i, w.id, w.o.Span, w.from, e.KV,
				want[i])
		}
		before := m.states[e.KV.ModRevision-1][string(e.KV.Key)]
		switch {
		case !w.o.Previous && e.Previous != nil:
			t.Fatalf("watch %d got what %q was before, unasked", w.id, e.KV.Key)
		case e.Previous != nil && e.KV.ModRevision <= w.compacted:
			t.Fatalf("watch %d, which began when %d was compacted, got what %q was before revision %d",
				w.id, w.compacted, e.KV.Key, e.KV.ModRevision)
		case w.o.Previous && (e.Previous != nil || e.KV.ModRevision-1 >= m.compacted) &&
			!proto.Equal(e.Previous, before):
			t.Fatalf("before %v there was %v, the event says %v", e.KV, before, e.Previous)
		}
	}
	// Progress is not told early, and a revision not cut.
	for _, kv := range want[len(w.got):] {
		if kv.ModRevision <= max(w.upTo, w.progress) {
			t.Fatalf("watch %d of %v was told that it has everything up to %d, %d, without %v", w.id,
				w.o.Span, w.upTo, w.progress, kv)
		}
	}
	if n := len(w.got); n > 0 && w.got[n-1].KV.ModRevision > w.upTo {
		r, size := w.got[n-1].KV.ModRevision, 0
		for _, kv := range m.events {
			if kv.ModRevision == r {
				size++
			}
		}
		if size <= smallWatchLimits.RecentEvents-1 {
			t.Fatalf("watch %d got a part of revision %d, which has only %d events", w.id, r, size)
		}
		if w.upTo != r-1 {
			t.Fatalf("watch %d has a part of revision %d, and was told that it has all up to %d", w.id, r,
				w.upTo)
		}
	}
}

// stream is a stream of watches on a member.
type stream struct {
	*watch.Stream
	on      *member
	watches []*watched
	next    int64
}

func (s *stream) add(t *rapid.T, m *model) {
	w := &watched{id: s.next, compacted: s.on.store.Compacted()}
	s.next++
	key, end := drawRange(t)
	w.o = watch.Options{Span: command.Span(key, end), Previous: rapid.Bool().Draw(t, "previous")}
	if len(end) == 0 {
		w.o.Span = keys.Point(key)
	}
	switch rapid.IntRange(0, 5).Draw(t, "filter") {
	case 0:
		w.o.NoPut = true
	case 1:
		w.o.NoDelete = true
	}
	if rapid.IntRange(0, 2).Draw(t, "from now on") > 0 {
		w.o.From = uint64(rapid.IntRange(1, int(m.revision)+3).Draw(t, "from"))
	}
	head, err := s.Add(w.id, w.o)
	if w.o.Span.Empty() {
		if !errors.Is(err, watch.ErrEmptySpan) {
			t.Fatalf("a watch of nothing: %v", err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if head != s.on.store.Revision() {
		t.Fatalf("a new watch was told revision %d, the newest is %d", head, s.on.store.Revision())
	}
	if w.from = w.o.From; w.from == 0 {
		w.from = head + 1
	}
	s.watches = append(s.watches, w)
}

// take takes what there is, and checks it.
func (s *stream) take(t fataler, m *model) {
	taken, err := s.Take()
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range taken {
		var w *watched
		for _, one := range s.watches {
			if one.id == d.ID {
				w = one
			}
		}
		switch {
		case w == nil:
			t.Fatalf("a delivery to watch %d, which is not there", d.ID)
		case w.ended > 0:
			t.Fatalf("a delivery to watch %d, which has ended", d.ID)
		}
		w.got = append(w.got, d.Events...)
		w.upTo = d.Revision
		w.ended = d.Compacted
		w.check(t, m, false)
		if next := max(w.from, w.upTo+1); w.ended > 0 &&
			(w.ended > m.compacted || next >= w.ended && w.from >= w.ended) {
			t.Fatalf("watch %d from %d, which has all up to %d, was told that %d is compacted", w.id,
				w.from, w.upTo, w.ended)
		}
	}
	if revision, ok := s.Progress(0); ok {
		for _, w := range s.watches {
			if w.ended == 0 {
				if w.progress = revision; w.from > revision+1 {
					t.Fatalf("progress %d was told of watch %d, which begins at %d", revision, w.id, w.from)
				}
				w.check(t, m, false)
			}
		}
	}
}

// finish takes until every watch has everything.
func (s *stream) finish(t fataler, m *model) {
	s.watches = slices.DeleteFunc(s.watches, func(w *watched) bool {
		future := w.from > s.on.store.Revision()+1
		if future {
			w.check(t, m, true)
			if err := s.Remove(w.id); err != nil {
				t.Fatal(err)
			}
		}
		return future
	})
	deadline := time.After(20 * time.Second)
	for {
		s.take(t, m)
		if _, ok := s.Progress(s.on.store.Revision()); ok {
			break
		}
		select {
		case <-s.Ready():
		case <-deadline:
			t.Fatalf("a stream does not get everything up to %d", s.on.store.Revision())
		}
	}
	for _, w := range s.watches {
		w.check(t, m, w.ended == 0)
	}
}

// Whatever happens, and however late a stream takes it: each watch gets all of its events once and
// in order, no revision is cut that is not too large, and no progress is told that was not made;
// watches of every kind, from the past and the future, over compactions and installed snapshots.
func TestWatchStreams(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newCore(t, 2, func(config *Config) { config.watch = &smallWatchLimits })
		defer c.close()
		c.elect(c.members[0])
		m := newModel()
		var streams []*stream
		for i := range 4 {
			on := c.members[i%2]
			s, err := on.store.NewWatchStream()
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			streams = append(streams, &stream{Stream: s, on: on})
		}
		second := c.members[1]
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			s := rapid.SampledFrom(streams).Draw(t, "stream")
			switch action := rapid.IntRange(0, 23).Draw(t, "action"); {
			case action == 0:
				second.catchUp()
			case action == 1:
				if index, _ := second.store.Applied(); int(index) < len(c.log) {
					transfer(t, c.members[0], second)
				}
			case action <= 5:
				s.add(t, m)
			case action == 6 && len(s.watches) > 0:
				i := rapid.IntRange(0, len(s.watches)-1).Draw(t, "watch")
				if err := s.Remove(s.watches[i].id); err != nil {
					t.Fatal(err)
				}
				s.watches = append(s.watches[:i], s.watches[i+1:]...)
			case action <= 9:
				s.take(t, m)
			default:
				cmd := drawCommand(t, m)
				if command.Validate(cmd) == nil {
					_, _ = c.members[0].store.Do(t.Context(), cmd)
					m.apply(cmd)
				}
			}
		}
		second.catchUp()
		for _, s := range streams {
			s.finish(t, m)
		}
	})
}
