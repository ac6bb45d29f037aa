package locks

import (
	"slices"
	"sort"
	"strings"

	"github.com/tidemarkdb/tidemark/txn"
)

// A span lock keeps other transactions and writes out of [Key, End), keys that do not exist yet
// included. It is a volatile lock like any other: it has a transaction, waiters, and an end. It is
// not among the locks of keys: it is in no read's way, and its transaction may lock keys in it.
//
// INVARIANT: the spans that are held are disjoint, and in the order of their starts in Table.spans.

// Spans is the number of spans that are held.
func (t *Table[W]) Spans() int { return len(t.spans) }

// Empty says that nothing is locked: no key and no span.
func (t *Table[W]) Empty() bool { return t.byKey == nil }

// contains says whether a key lies in the span of a span lock.
func (l *Lock[W]) contains(key string) bool {
	return l.Key <= key && (l.End == "" || key < l.End)
}

// SpanAt is the span lock that a user key lies in; nil if there is none.
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

// EachSpanIn calls visit for the span locks that have keys in common with [start, end), in their
// order, until it returns false. An empty end is none. visit must not change the table.
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

// gaps are the parts of [start, end) that no span lock covers.
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

// SpanNeed is how many span locks AcquireSpan would add, and how many bytes their bounds have.
func (t *Table[W]) SpanNeed(start, end string) (count, bytes int) {
	for _, g := range t.gaps(start, end) {
		count++
		bytes += len(g.start) + len(g.end)
	}
	return count, bytes
}

// AcquireSpan makes volatile locks of what no transaction holds of [start, end), which must not be
// empty.
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

// SpanBytes is how many bytes the bounds of all span locks have.
func (t *Table[W]) SpanBytes() int { return t.spanBytes }

// EachSpan calls visit for the span locks of a transaction, in no certain order. visit must not
// change the table.
func (x *Transaction[W]) EachSpan(visit func(*Lock[W])) {
	if x.spans == 0 {
		return
	}
	for _, l := range x.locks {
		if l.Span {
			visit(l)
		}
	}
}

// Spans is how many of its locks are of spans.
func (x *Transaction[W]) Spans() int { return x.spans }

// dropSpan takes a span lock out of the spans.
func (t *Table[W]) dropSpan(l *Lock[W]) {
	t.spans = slices.DeleteFunc(t.spans, func(other *Lock[W]) bool { return other == l })
	t.spanBytes -= len(l.Key) + len(l.End)
}
