package locks

import (
	"slices"
	"sort"
	"strings"

	"github.com/tidemarkdb/tidemark/txn"
)

// A span lock keeps other transactions and writes out of [Key, End), including keys that do not
// exist yet. It is a volatile lock like any other: it has a transaction, waiters, and an end. It is
// not among the locks of keys: it is in no read's way, and its transaction may lock keys within it.
//
// INVARIANT: the locked spans are disjoint, and sorted by their starts in Table.spans.

// Spans returns the number of span locks.
func (t *Table[W]) Spans() int { return len(t.spans) }

// contains reports whether a key lies in the span of a span lock.
func (l *Lock[W]) contains(key string) bool {
	return l.Key <= key && (l.End == "" || key < l.End)
}

// SpanAt returns the span lock around a user key; nil if there is none.
func (t *Table[W]) SpanAt(key string) *Lock[W] {
	if len(t.spans) == 0 {
		return nil
	}
	i := sort.Search(len(t.spans), func(i int) bool { return t.spans[i].Key > key })
	if i == 0 || !t.spans[i-1].contains(key) {
		return nil
	}
	return t.spans[i-1]
}

// EachSpanIn calls visit for the span locks that overlap [start, end), in their order, until visit
// returns false. An empty end means no bound. visit must not change the table.
func (t *Table[W]) EachSpanIn(start, end string, visit func(*Lock[W]) bool) {
	i := sort.Search(len(t.spans),
		func(i int) bool { return t.spans[i].End == "" || t.spans[i].End > start })
	for ; i < len(t.spans) && (end == "" || t.spans[i].Key < end); i++ {
		if !visit(t.spans[i]) {
			return
		}
	}
}

// gap is a part of a span that no transaction holds.
type gap struct{ start, end string }

// gaps returns the parts of [start, end) that no span lock covers.
func (t *Table[W]) gaps(start, end string) (out []gap) {
	covered := false
	t.EachSpanIn(start, end, func(l *Lock[W]) bool {
		if start < l.Key {
			out = append(out, gap{start, l.Key})
		}
		start = l.End
		covered = l.End == "" || end != "" && l.End >= end
		return !covered
	})
	if !covered {
		out = append(out, gap{start, end})
	}
	return out
}

// SpanNeed returns how many span locks AcquireSpan would add, and the size of their bounds in
// bytes.
func (t *Table[W]) SpanNeed(start, end string) (count, bytes int) {
	for _, g := range t.gaps(start, end) {
		count++
		bytes += len(g.start) + len(g.end)
	}
	return count, bytes
}

// AcquireSpan makes volatile locks of the parts of [start, end) that no transaction holds. [start,
// end) must not be empty.
func (t *Table[W]) AcquireSpan(start, end string, of txn.Info, s State) {
	s.Volatile = true
	for _, g := range t.gaps(start, end) {
		t.make()
		state := s
		l := t.add(&Lock[W]{Key: strings.Clone(g.start), End: strings.Clone(g.end), Span: true,
			Applied: &state}, of)
		i := sort.Search(len(t.spans), func(i int) bool { return t.spans[i].Key > l.Key })
		t.spans = slices.Insert(t.spans, i, l)
		t.spanBytes += len(l.Key) + len(l.End)
		t.volatile[l] = struct{}{}
	}
	if x := t.Transaction(&of); x != nil {
		x.Acquired = max(x.Acquired, s.Acquired)
	}
}

// SpanBytes returns the size of the bounds of all span locks in bytes.
func (t *Table[W]) SpanBytes() int { return t.spanBytes }

// dropSpan removes a span lock from the spans.
func (t *Table[W]) dropSpan(l *Lock[W]) {
	t.spans = slices.DeleteFunc(t.spans, func(other *Lock[W]) bool { return other == l })
	t.spanBytes -= len(l.Key) + len(l.End)
}
