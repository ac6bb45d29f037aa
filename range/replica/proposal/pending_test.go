package proposal

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Pending beside a list of all pending writes, with entries that are applied in order, and with
// epochs that end.
func TestPendingAgainstList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p Pending
		var entries [][]*Write // oldest first
		var lost [][]*Write    // of epochs that ended
		clock, sequence := int64(0), uint64(0)
		key := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprint("k", rapid.IntRange(0, 20).Draw(t, "key"))
		})
		// list is a key's pending writes, newest first.
		list := func(key string) (of []*Write) {
			for _, e := range entries {
				for _, w := range e {
					if w.Key == key {
						of = append(of, w)
					}
				}
			}
			slices.Reverse(of)
			return of
		}
		t.Repeat(map[string]func(*rapid.T){
			"propose": func(t *rapid.T) {
				sequence++
				var entry []*Write
				for range rapid.IntRange(1, 10).Draw(t, "writes") {
					clock++
					w := &Write{
						Key: key.Draw(t, "key"), Sequence: sequence,
						Timestamp: hlc.Timestamp{Wall: clock},
						Request: mvcc.RequestID{Client: 1,
							Sequence: rapid.Uint64Range(1, 5).Draw(t, "request")},
						Tombstone: rapid.Bool().Draw(t, "tombstone"),
					}
					p.Add(w)
					entry = append(entry, w)
				}
				entries = append(entries, entry)
			},
			"apply": func(*rapid.T) {
				if len(entries) > 0 {
					p.Remove(entries[0])
					entries = entries[1:]
				}
			},
			"epoch ends": func(t *rapid.T) {
				if rapid.IntRange(0, 5).Draw(t, "dice") == 0 {
					p.Clear()
					lost, entries = append(lost, entries...), nil
				}
			},
			"apply lost": func(*rapid.T) {
				if len(lost) > 0 {
					p.Remove(lost[0])
					lost = lost[1:]
				}
			},
			"": func(t *rapid.T) {
				k := key.Draw(t, "key")
				want := list(k)
				var got []*Write
				for w := p.Newest(k); w != nil; w = w.Older() {
					got = append(got, w)
				}
				if !slices.Equal(got, want) {
					t.Fatalf("key %s: %d pending writes, want %d", k, len(got), len(want))
				}
				// element is an element of want; nil beyond its ends.
				element := func(i int) *Write {
					if i < 0 || i >= len(want) {
						return nil
					}
					return want[i]
				}
				if oldest := p.Oldest(k); oldest != element(len(want)-1) {
					t.Fatalf("key %s: the oldest is %v", k, oldest)
				}
				at := hlc.Timestamp{Wall: rapid.Int64Range(0, clock+1).Draw(t, "at")}
				request := mvcc.RequestID{Client: 1, Sequence: rapid.Uint64Range(1, 5).Draw(t, "request")}
				below := func(w *Write) bool { return w.Timestamp.LessEq(at) }
				if got := p.At(k, at); got != element(slices.IndexFunc(want, below)) {
					t.Fatalf("key %s at %s: %v", k, at, got)
				}
				made := func(w *Write) bool { return at.Less(w.Timestamp) && w.Request == request }
				if got := p.Find(k, at, request); got != element(slices.IndexFunc(want, made)) {
					t.Fatalf("key %s above %s, request %v: %v", k, at, request, got)
				}
				keys := map[string]bool{}
				for _, e := range entries {
					for _, w := range e {
						keys[w.Key] = true
					}
				}
				if p.Len() != len(keys) {
					t.Fatalf("%d keys, want %d", p.Len(), len(keys))
				}
			},
		})
	})
}

// An entry that carries many keys leaves no large map behind.
func TestPendingShrinks(t *testing.T) {
	var p Pending
	var writes []*Write
	for i := range 1000 {
		w := &Write{Key: fmt.Sprint(i), Timestamp: hlc.Timestamp{Wall: 1}}
		p.Add(w)
		writes = append(writes, w)
	}
	p.Remove(writes)
	if p.keys != nil {
		t.Fatal("an empty Pending keeps its map")
	}
}
