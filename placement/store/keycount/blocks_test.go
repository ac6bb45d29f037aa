package keycount

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// naive has the keys of each revision.
type naive struct{ states []map[string]bool }

func (n *naive) revision() uint64 { return uint64(len(n.states) - 1) }

func (n *naive) keys(span keys.Span, revision uint64) [][]byte {
	var all [][]byte
	for key := range n.states[revision] {
		if span.Contains([]byte(key)) {
			all = append(all, []byte(key))
		}
	}
	slices.SortFunc(all, bytes.Compare)
	return all
}

// change makes the next revision, in both.
func (n *naive) change(t *rapid.T, b *Blocks, name *rapid.Generator[string]) {
	state := maps.Clone(n.states[n.revision()])
	next := n.revision() + 1
	for range rapid.IntRange(0, 4).Draw(t, "changes") {
		key := name.Draw(t, "key")
		created := !state[key]
		if state[key] = true; !created {
			delete(state, key)
		}
		b.Changed(next, []byte(key), created)
	}
	b.Advance(next)
	n.states = append(n.states, state)
}

// Counts are those that are simply counted, of old and new revisions, while keys are created and
// deleted, also during a count; and what is held stays within its bounds.
func TestCountsAreRight(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := &Limits{BlockKeys: rapid.IntRange(1, 4).Draw(t, "block"), Blocks: 6, BoundBytes: 40,
			BoundLength: 3, Vacant: 4, Changes: rapid.IntRange(1, 30).Draw(t, "recent"), ChangeBytes: 60}
		b := New(limits)
		n := &naive{states: []map[string]bool{{}}}
		name := rapid.StringMatching(`[a-e]{1,4}`)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				b.Reset(n.revision())
			case 1, 2, 3, 4:
				n.change(t, b, name)
			case 5:
				n.walk(t, b, name)
			default:
				span := keys.Span{Start: []byte(name.Draw(t, "start"))}
				if rapid.Bool().Draw(t, "bounded") {
					span.End = []byte(name.Draw(t, "end"))
				}
				back := rapid.IntRange(0, min(3, int(n.revision()))).Draw(t, "back")
				at := n.revision() - uint64(back)
				busy := rapid.IntRange(0, 3).Draw(t, "busy") == 0
				want := uint64(len(n.keys(span, at)))
				got, err := b.Count(span, at, func(part keys.Span, visit func([]byte)) error {
					for i, key := range n.keys(part, at) {
						if busy && i%2 == 0 {
							n.change(t, b, name)
						}
						visit(key)
					}
					return nil
				})
				if err != nil || got != want {
					t.Fatalf("%v at %d has %d keys, want %d; %v", span, at, got, want, err)
				}
			}
			n.check(t, b)
		}
	})
}

// walk passes a span at a revision, while others change keys, and says what has none.
func (n *naive) walk(t *rapid.T, b *Blocks, name *rapid.Generator[string]) {
	span := keys.Span{Start: []byte(name.Draw(t, "start"))}
	if rapid.Bool().Draw(t, "bounded") {
		span.End = []byte(name.Draw(t, "end"))
	}
	at := n.revision() - uint64(rapid.IntRange(0, min(3, int(n.revision()))).Draw(t, "back"))
	for _, key := range n.keys(span, at) {
		b.FoundVacant(keys.Span{Start: span.Start, End: key}, at, 5)
		span.Start = append(bytes.Clone(key), 0)
		if rapid.IntRange(0, 3).Draw(t, "busy") == 0 {
			n.change(t, b, name)
		}
	}
	b.FoundVacant(span, at, rapid.IntRange(1, 9).Draw(t, "passed"))
}

// checkVacant checks that a vacant span has no key from its revision on.
func (n *naive) checkVacant(t *rapid.T, b *Blocks) {
	known := b.Vacant().spans
	for i, one := range known {
		if i > 0 && !within(known[i-1].end, one.start) || one.end != "" && one.end <= one.start {
			t.Fatalf("vacant spans overlap: %v", known)
		}
		span := keys.Span{Start: []byte(one.start), End: []byte(one.end)}
		for at := one.since; at <= n.revision(); at++ {
			if found := n.keys(span, at); len(found) > 0 {
				t.Fatalf("%v is vacant from %d on, and has %q at %d", span, one.since, found, at)
			}
		}
	}
	if len(known) > b.limits.Vacant {
		t.Fatalf("%d vacant spans", len(known))
	}
}

func (n *naive) check(t *rapid.T, b *Blocks) {
	b.mu.Lock()
	defer b.mu.Unlock()
	size := 0
	for i, one := range b.mu.blocks {
		if i > 0 && !within(b.mu.blocks[i-1].end, one.start) || one.end != "" && one.end <= one.start {
			t.Fatalf("blocks overlap: %v", b.mu.blocks)
		}
		span := keys.Span{Start: []byte(one.start), End: []byte(one.end)}
		if want := len(n.keys(span, n.revision())); one.keys != want {
			t.Fatalf("block %v has %d keys, want %d", span, one.keys, want)
		}
		size += one.bytes()
	}
	n.checkVacant(t, b)
	if size != b.mu.bytes || b.tooMuchLocked() || len(b.mu.recent.changes) > b.limits.Changes ||
		b.mu.recent.bytes > b.limits.ChangeBytes {
		t.Fatalf("%d blocks of %d bytes (%d), %d changes of %d bytes", len(b.mu.blocks), size,
			b.mu.bytes, len(b.mu.recent.changes), b.mu.recent.bytes)
	}
}

// The first count goes through all keys, and later ones through a few, wherever they begin and
// whatever was created meanwhile.
func TestCountsAreCheap(t *testing.T) {
	const total = 100_000
	b := New(nil)
	b.Reset(1)
	all := make([][]byte, 0, 2*total)
	for i := range total {
		all = append(all, fmt.Appendf(nil, "key/%08d", 2*i))
	}
	scanned := 0
	scan := func(span keys.Span, visit func([]byte)) error {
		from, _ := slices.BinarySearchFunc(all, span.Start, bytes.Compare)
		for _, key := range all[from:] {
			if !span.Contains(key) {
				break
			}
			visit(key)
			scanned++
		}
		return nil
	}
	count := func(i int, want uint64) {
		t.Helper()
		got, err := b.Count(keys.Span{Start: fmt.Appendf(nil, "key/%08d", i)}, b.mu.recent.head, scan)
		if err != nil || got != want {
			t.Fatalf("%d, want %d; %v", got, want, err)
		}
	}
	count(0, total)
	if scanned != total {
		t.Fatalf("the first count went through %d keys", scanned)
	}
	for i := range 1000 {
		at := i * 7919 % total
		scanned = 0
		count(2*at, uint64(total-at))
		if most := (growth + 1) * b.limits.BlockKeys; scanned > most {
			t.Fatalf("count %d went through %d keys, want at most %d", i, scanned, most)
		}
	}
	for i := range total {
		key := fmt.Appendf(nil, "key/%08d", 2*i+1)
		all = append(all, key)
		b.Changed(uint64(i+2), key, true)
	}
	slices.SortFunc(all, bytes.Compare)
	scanned = 0
	for i := range 1000 {
		at := i * 7919 % total
		count(2*at, uint64(2*(total-at)))
	}
	if scanned > 1000*(growth+1)*b.limits.BlockKeys {
		t.Fatalf("1,000 counts went through %d keys", scanned)
	}
}
