package spans

import (
	"hash/maphash"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Entry is one span of an Index.
type Entry[V any] struct {
	// start and end are as in keys.Span: an empty end means no upper end.
	start, end string
	// Value belongs to the caller.
	Value V
}

// Contains reports whether the key lies in the entry's span.
func (e *Entry[V]) Contains(key []byte) bool {
	return string(key) >= e.start && below(key, e.end)
}

// below reports whether a key is below an end.
func below(key []byte, end string) bool { return end == "" || string(key) < end }

// point reports whether the span holds one key only.
func (e *Entry[V]) point() bool { return isPoint(e.start, e.end) }

func isPoint(start, end string) bool {
	n := len(start)
	return len(end) == n+1 && end[n] == 0 && end[:n] == start
}

// Index is a set of spans. One goroutine at a time uses it.
type Index[V any] struct {
	points map[string]*Entry[V]
	root   *node[V]
	seed   maphash.Seed
	ranges int
}

// New returns an index without spans.
func New[V any]() *Index[V] {
	return &Index[V]{points: map[string]*Entry[V]{}, seed: maphash.MakeSeed()}
}

// Len is the number of spans.
func (x *Index[V]) Len() int { return len(x.points) + x.ranges }

// Entry returns the entry of a span. If there is none, it adds one with a zero value. The span must
// not be empty; it is copied.
func (x *Index[V]) Entry(span keys.Span) *Entry[V] {
	if len(span.End) == len(span.Start)+1 && isPoint(string(span.Start), string(span.End)) {
		if e := x.points[string(span.Start)]; e != nil {
			return e
		}
		end := string(span.End)
		e := &Entry[V]{start: end[:len(span.Start)], end: end}
		x.points[e.start] = e
		return e
	}
	start, end := string(span.Start), string(span.End)
	if n := x.root.find(start, end); n != nil {
		return &n.Entry
	}
	added := &node[V]{Entry: Entry[V]{start: start, end: end}, max: end, priority: x.priority(start,
		end)}
	x.root = x.root.insert(added)
	x.ranges++
	if invariants.Enabled {
		x.checkInvariants()
	}
	return &added.Entry
}

// Delete removes an entry, which must be in the index.
func (x *Index[V]) Delete(e *Entry[V]) {
	if e.point() {
		delete(x.points, e.start)
		return
	}
	x.root = x.root.remove(e.start, e.end)
	x.ranges--
	if invariants.Enabled {
		x.checkInvariants()
	}
}

// Visit calls visit for every entry whose span holds the key, in no particular order. visit must
// not change the index.
func (x *Index[V]) Visit(key []byte, visit func(*Entry[V])) {
	if e := x.points[string(key)]; e != nil {
		visit(e)
	}
	x.root.visit(key, visit)
}

// priority returns a keyed hash of the span, which clients cannot predict, so that the tree has the
// depth of a random tree for any spans in any order.
func (x *Index[V]) priority(start, end string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	_, _ = h.WriteString(start)
	_ = h.WriteByte(0xff)
	_, _ = h.WriteString(end)
	return h.Sum64()
}
