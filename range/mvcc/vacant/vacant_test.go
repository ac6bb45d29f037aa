package vacant

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
)

func at(wall int) hlc.Timestamp { return hlc.Timestamp{Wall: int64(wall)} }

func has(m *Memory, key string) bool {
	return slices.ContainsFunc(m.Spans(), func(s Span) bool {
		return bytes.Compare(s.Start, []byte(key)) <= 0 && bytes.Compare([]byte(key), s.End) < 0
	})
}

// A value whose batch begins while a walk ends, when the walk is none any more and its spans are
// not known yet, ends the span that it lies in.
func TestWrittenWhileAWalkEnds(t *testing.T) {
	var m Memory
	m.Init(NewBudget(1<<20), 1)
	w := m.Walk()
	w.Found(Span{Start: []byte("a"), End: []byte("z"), Since: at(1), Keys: 9})
	written := make(chan struct{})
	m.ending = func() {
		if !m.Begin() {
			t.Error("the batch is not told")
			close(written)
			return
		}
		go func() {
			defer close(written)
			m.Wrote([]Write{{Key: []byte("k"), Timestamp: at(2)}})
			m.End()
		}()
	}
	w.End()
	<-written
	if has(&m, "k") || !has(&m, "j") || !has(&m, "l") {
		t.Errorf("the spans are %v", m.Spans())
	}
}

// A walk that begins while a batch is being committed learns nothing, for it may miss the batch.
func TestWalkWhileABatchIsCommitted(t *testing.T) {
	var m Memory
	m.Init(nil, 1)
	if m.Begin() {
		t.Error("a batch is told to a memory that knows nothing")
	}
	if m.Walk() != nil {
		t.Error("a walk learns beside a batch that it is not told of")
	}
	m.End()
	w := m.Walk()
	if w == nil || !m.Begin() {
		t.Fatal("a batch is not told to a walk")
	}
	m.Wrote([]Write{{Key: []byte("k"), Timestamp: at(2)}})
	m.End()
	w.Found(Span{Start: []byte("a"), End: []byte("z"), Since: at(1)})
	w.End()
	if has(&m, "k") || !has(&m, "a") {
		t.Errorf("the spans are %v", m.Spans())
	}
}

// Whatever walks find, and whatever is written meanwhile: no key that has a value lies in a span,
// and no span says less than the timestamp of what was deleted in it. The bounds hold.
func TestMemoryModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keys = 40
		budget := NewBudget(rapid.Int64Range(300, 4000).Draw(t, "budget"))
		var m Memory
		m.Init(budget, 1)
		// deleted is since when each key has no value; 0: it has one.
		var deleted [keys]int
		key := func(i int) []byte { return fmt.Appendf(nil, "k%02d", i) }
		now := 1
		var walks []*Walk
		var seen [][keys]int
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now++
			switch action := rapid.IntRange(0, 5).Draw(t, "action"); {
			case action == 0:
				if w := m.Walk(); w != nil {
					walks, seen = append(walks, w), append(seen, deleted)
				}
			case action == 1 && len(walks) > 0:
				i := rapid.IntRange(0, len(walks)-1).Draw(t, "walk")
				for start := 0; start < keys; start++ {
					end, since := start, 0
					for ; end < keys && seen[i][end] > 0; end++ {
						since = max(since, seen[i][end])
					}
					if end > start {
						walks[i].Found(Span{Start: key(start), End: key(end), Since: at(since),
							Keys: end - start})
						start = end
					}
				}
				walks[i].End()
				walks, seen = slices.Delete(walks, i, i+1), slices.Delete(seen, i, i+1)
			case action == 2 && rapid.IntRange(0, 5).Draw(t, "forget") == 0:
				m.Reset()
			default:
				i := rapid.IntRange(0, keys-1).Draw(t, "key")
				w := Write{Key: key(i), Timestamp: at(now), Tombstone: action != 3}
				if m.Begin() {
					m.Wrote([]Write{w})
				}
				if deleted[i] = now; !w.Tombstone {
					deleted[i] = 0
				}
				m.End()
			}
			if budget.Used() > budget.limit || len(m.Spans()) > maxSpans {
				t.Fatalf("%d spans take %d bytes", len(m.Spans()), budget.Used())
			}
			for i := range keys {
				for _, s := range m.Spans() {
					if bytes.Compare(s.Start, key(i)) <= 0 && bytes.Compare(key(i), s.End) < 0 &&
						(deleted[i] == 0 || s.Since.Less(at(deleted[i]))) {
						t.Fatalf("key %d, deleted at %d, lies in %v", i, deleted[i], s)
					}
				}
			}
		}
	})
}
