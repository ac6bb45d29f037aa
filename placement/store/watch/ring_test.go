package watch

import (
	"testing"

	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// TestRingPrevious has revision 2 without what its key was before, and revision 3 with it: a watch
// that wants it is given nothing of revision 2 from memory.
func TestRingPrevious(t *testing.T) {
	r := &ring{limits: DefaultLimits()}
	r.reset(1)
	kv := func(revision uint64) *storepb.KeyValue {
		return &storepb.KeyValue{Key: []byte("k"), ModRevision: revision, Version: revision}
	}
	r.publish([]Revision{{Number: 2, Events: []Event{{KV: kv(2), Untold: true}}}}, 2)
	r.publish([]Revision{{Number: 3, Events: []Event{{KV: kv(3), Previous: kv(2)}}}}, 3)
	for _, c := range []struct {
		from         uint64
		previous, ok bool
	}{{2, false, true}, {2, true, false}, {3, false, true}, {3, true, true}} {
		if _, _, ok := r.read(Position{Revision: c.from}, c.previous); ok != c.ok {
			t.Errorf("read from %d, previous %t: %t", c.from, c.previous, ok)
		}
		if _, ok := r.since(c.from, 4, c.previous, 10); ok != c.ok {
			t.Errorf("since %d, previous %t: %t", c.from, c.previous, ok)
		}
	}
	if st, _, _ := r.read(Position{Revision: 2}, false); st.previous {
		t.Error("a stretch with revision 2 claims to say what its keys were before")
	}
}

// shortHistory has nothing but where it starts.
type shortHistory struct{ start uint64 }

func (h *shortHistory) Compacted() uint64 { return h.start }

func (h *shortHistory) Changes(
	from Position, _ bool, _ func(*Event, Position) bool,
) (compacted uint64, err error) {
	if from.Revision < h.start {
		return h.start, nil
	}
	return 0, nil
}

// A live watch has all its events in memory when the history before them is compacted; another
// watch wants what keys were before, which was not read. The first one gets its events.
func TestCompactionBesideAWatchOfPrevious(t *testing.T) {
	history := &shortHistory{}
	h := New(Config{History: history, Head: 4})
	defer h.Close(errStopped)
	add := func(prefix string, previous bool) *Stream {
		s, err := h.NewStream()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		if _, err := s.Add(1, Options{Span: keys.PrefixSpan([]byte(prefix)),
			Previous: previous}); err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := add("k", false)
	var all []Revision
	for r := uint64(5); r <= 20; r++ {
		all = append(all, Revision{Number: r, Events: []Event{{Untold: r <= 15,
			KV: &storepb.KeyValue{Key: []byte("k"), ModRevision: r, Version: r}}}})
	}
	h.ring.publish(all, 20)
	history.start = 15
	add("other", true)
	poke(h.published)
	for got := 0; got < len(all); {
		taken, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range taken {
			if got += len(d.Events); d.Compacted > 0 {
				t.Fatalf("ended by a compaction at %d after %d events", d.Compacted, got)
			}
		}
	}
}
