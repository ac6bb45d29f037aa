package watch

import (
	"bytes"
	"errors"
	"slices"
	"strconv"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A stream that takes nothing keeps no more than its bound, and delays no other: when it takes, it
// gets everything, from the history.
func TestStreamThatDoesNotTake(t *testing.T) {
	limits := DefaultLimits()
	limits.RecentEvents, limits.QueueMost, limits.QueueLeast = 100, 4096, 4096
	s := newWatched(t, limits, 0)
	newStream := func() *Stream {
		stream := s.stream(t)
		if _, err := stream.Add(1, Options{Span: keys.PrefixSpan([]byte("k"))}); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	slow, fast := newStream(), newStream()
	const many = 2000
	got := 0
	value := bytes.Repeat([]byte("v"), 100)
	for i := range many {
		s.put(string(value), "k")
		for got <= i {
			taken, err := fast.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got += len(taken[0].Events)
		}
	}
	s.hub.mu.Lock()
	held, lagging := slow.bytes, len(slow.lagging)
	s.hub.mu.Unlock()
	if held > 4096+300 || lagging != 1 {
		t.Errorf("a stream that does not take holds %d bytes; %d watches lag", held, lagging)
	}
	for got = 0; got < many; {
		taken, err := slow.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range taken[0].Events {
			if got++; e.KV.Version != uint64(got) {
				t.Fatalf("version %d came as event %d", e.KV.Version, got)
			}
		}
	}
}

// A watch of what happens next that begins while the state is replaced begins behind what replaces
// it, however far that has compacted its history.
func TestWatchBesideAReplacement(t *testing.T) {
	s := newWatched(t, nil, 0)
	stream := s.stream(t)
	began := make(chan uint64, 1)
	if err := s.hub.Replace(func() (uint64, error) {
		for range 50 {
			s.commit(change{"k", "replaced"})
		}
		s.compact(s.head())
		go func() {
			revision, err := stream.Add(1, Options{Span: keys.PrefixSpan([]byte("k"))})
			if err != nil {
				t.Error(err)
			}
			began <- revision
		}()
		// One that begins at a revision that it names does not wait.
		if _, err := s.stream(t).Add(1, Options{Span: keys.PrefixSpan(nil), From: 1000}); err != nil {
			t.Error(err)
		}
		return s.head(), nil
	}); err != nil {
		t.Fatal(err)
	}
	if revision := <-began; revision != s.head() {
		t.Errorf("it began at revision %d of %d", revision, s.head())
	}
	at := s.put("next", "k")
	taken, err := stream.Next(t.Context())
	if err != nil || len(taken) != 1 || taken[0].Compacted != 0 || len(taken[0].Events) != 1 ||
		taken[0].Events[0].KV.ModRevision != at {
		t.Errorf("%+v, %v", taken, err)
	}
}

func TestWatchStreamRefuses(t *testing.T) {
	s := newWatched(t, nil, 2)
	stream := s.stream(t)
	all := Options{Span: keys.PrefixSpan(nil)}
	for _, id := range []int64{7, -1} {
		if _, err := stream.Add(id, all); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Add(7, all); !errors.Is(err, ErrExists) {
		t.Errorf("an id twice: %v", err)
	}
	if _, err := stream.Add(8, all); !errors.Is(err, ErrTooMany) {
		t.Errorf("one watch too many: %v", err)
	}
	if err := stream.Remove(8); !errors.Is(err, ErrUnknown) {
		t.Errorf("remove what is not there: %v", err)
	}
	if err := stream.Remove(7); err != nil {
		t.Error(err)
	}
	if _, err := stream.Add(7, all); err != nil {
		t.Errorf("an id that is free again: %v", err)
	}
	waits := make(chan error)
	go func() {
		_, err := stream.Next(t.Context())
		waits <- err
	}()
	stream.Close()
	if err := <-waits; !errors.Is(err, ErrClosed) {
		t.Errorf("a Next that waited while the stream was closed: %v", err)
	}
	if _, err := stream.Add(9, all); !errors.Is(err, ErrClosed) {
		t.Errorf("a watch on a closed stream: %v", err)
	}
}

// A revision that does not fit into a queue that has room for its first event comes whole.
func TestRevisionIsWhole(t *testing.T) {
	limits := DefaultLimits()
	limits.QueueMost, limits.QueueLeast = 500, 500
	s := newWatched(t, limits, 0)
	stream := s.stream(t)
	for id := range int64(3) {
		if _, err := stream.Add(id, Options{Span: keys.PrefixSpan(nil)}); err != nil {
			t.Fatal(err)
		}
	}
	value := bytes.Repeat([]byte("v"), 400)
	const revisions = 20
	for range revisions {
		s.put(string(value), "a", "b", "c")
	}
	got := map[int64]int{}
	for got[0]+got[1]+got[2] < 3*3*revisions {
		taken, err := stream.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range taken {
			got[d.ID] += len(d.Events)
			if last := d.Events[len(d.Events)-1].KV.ModRevision; len(d.Events)%3 != 0 ||
				d.Revision < last {
				t.Fatalf("watch %d got %d events, the last of revision %d, and has all up to %d", d.ID,
					len(d.Events), last, d.Revision)
			}
		}
	}
}

// A stream that has taken everything in its queue has not made the progress of its live watches
// while others lag.
func TestProgressIsNotToldEarly(t *testing.T) {
	limits := DefaultLimits()
	limits.QueueMost, limits.QueueLeast = 500, 500
	s := newWatched(t, limits, 0)
	stream := s.stream(t)
	for id, key := range []string{"often", "seldom"} {
		if _, err := stream.Add(int64(id), Options{Span: keys.Point([]byte(key))}); err != nil {
			t.Fatal(err)
		}
	}
	var got [2]int
	take := func() {
		taken, err := stream.Take()
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range taken {
			got[d.ID] += len(d.Events)
		}
	}
	const rounds, often = 50, 30
	for round := 1; round <= rounds; round++ {
		for range often {
			s.put("x", "often")
		}
		revision := s.put("x", "seldom")
		for {
			take()
			if _, ok := stream.Progress(revision); ok {
				break
			}
			<-stream.Ready()
		}
		if got != [2]int{round * often, round} {
			t.Fatalf("progress up to %d was told in round %d, with %v events", revision, round, got)
		}
	}
}

// A live watch is told what the key was before a change that is compacted together with the change:
// when the change was made, that could still be read. A watch from the compacted revision that
// comes then is not told, whether or not the live ones have been given the change already.
func TestCompactionWithTheChange(t *testing.T) {
	s := newWatched(t, nil, 0)
	all := Options{Span: keys.PrefixSpan(nil), Previous: true}
	live := s.stream(t)
	if _, err := live.Add(1, all); err != nil {
		t.Fatal(err)
	}
	s.put("0", "q")
	for n := range 100 {
		one := s.commit(change{"q", strconv.Itoa(n + 1)})
		s.compact(one.Number)
		s.hub.Publish([]Revision{one}, one.Number)
		late := s.stream(t)
		if _, err := late.Add(1, Options{Span: all.Span, Previous: true, From: one.Number}); err != nil {
			t.Fatal(err)
		}
		for name, stream := range map[string]*Stream{"live": live, "late": late} {
			var e Event
			for e.KV.GetModRevision() < one.Number {
				taken, err := stream.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if events := taken[0].Events; len(events) > 0 {
					e = events[len(events)-1]
				}
			}
			if told := e.Previous != nil; told != (name == "live") {
				t.Fatalf("round %d: the %s watch is told what the key was before: %t", n, name, told)
			}
		}
		late.Close()
	}
}

// A watch from the compacted revision is not told what the key was before, although another watch
// has kept the change, with what was before, in memory. What was before later changes it is told.
func TestCompactedIsNotTold(t *testing.T) {
	for name, beside := range map[string]bool{"alone": false, "beside another watch": true} {
		t.Run(name, func(t *testing.T) {
			s := newWatched(t, nil, 0)
			if beside {
				if _, err := s.stream(t).Add(1, Options{Span: keys.Point([]byte("q")),
					Previous: true}); err != nil {
					t.Fatal(err)
				}
			}
			s.put("1", "q")
			compacted := s.put("2", "q")
			newest := s.put("3", "q")
			s.compact(compacted)
			stream := s.stream(t)
			if _, err := stream.Add(1, Options{Span: keys.Point([]byte("q")), From: compacted,
				Previous: true}); err != nil {
				t.Fatal(err)
			}
			var told []string
			for upTo := uint64(0); upTo < newest; {
				taken, err := stream.Next(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				upTo = taken[0].Revision
				for _, e := range taken[0].Events {
					told = append(told, string(e.Previous.GetValue())+">"+string(e.KV.Value))
				}
			}
			if want := []string{">2", "2>3"}; !slices.Equal(told, want) {
				t.Errorf("told %q, want %q", told, want)
			}
		})
	}
}
