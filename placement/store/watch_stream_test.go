package store

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// A stream that takes nothing keeps no more than its bound, and delays nobody: when it takes, it
// gets everything, from the database.
func TestStreamThatDoesNotTake(t *testing.T) {
	limits := usualWatchLimits
	limits.recentEvents, limits.queueMost, limits.queueLeast = 100, 4096, 4096
	_, s := one(t, func(config *Config) { config.watch = &limits })
	newStream := func() *WatchStream {
		stream, err := s.NewWatchStream()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stream.Close)
		if _, err := stream.Add(1, WatchOptions{Span: keys.PrefixSpan([]byte("k"))}); err != nil {
			t.Fatal(err)
		}
		return stream
	}
	slow, fast := newStream(), newStream()
	const many = 2000
	got := 0
	value := bytes.Repeat([]byte("v"), 100)
	for i := range many {
		put(t, s, "k", string(value))
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

func TestWatchStreamRefuses(t *testing.T) {
	_, s := one(t, func(config *Config) { config.MaxWatchers = 2 })
	stream, err := s.NewWatchStream()
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	all := WatchOptions{Span: keys.PrefixSpan(nil)}
	for _, id := range []int64{7, -1} {
		if _, err := stream.Add(id, all); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stream.Add(7, all); !errors.Is(err, ErrWatchExists) {
		t.Errorf("an id twice: %v", err)
	}
	if _, err := stream.Add(8, all); !errors.Is(err, ErrTooManyWatchers) {
		t.Errorf("one watch too many: %v", err)
	}
	if err := stream.Remove(8); !errors.Is(err, ErrWatchUnknown) {
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
