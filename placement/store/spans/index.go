package spans

import (
	"hash/maphash"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Entry is one span of an Index.
type Entry[V any] struct {
	// start and end are those of a keys.Span: an empty end is none.
	start, end string
	// Value is the caller's.
	Value V
}

// Contains reports whether the key lies in the entry's span.
func (e *Entry[V]) Contains(key []byte) bool {
	return string(key) >= e.start && below(key, e.end)
}

// below says whether a key is below an end.
func below(key []byte, end string) bool { return end == "" || string(key) < end }

// point says whether the span is that of one key.
func (e *Entry[V]) point() bool { return isPoint(e.start, e.end) }

func isPoint(start, end string) bool {
	n := len(start)
	return len(end) == n+1 && end[n] == 0 && end[:n] == start
}

// Index is a set of spans. It is for one goroutine at a time.
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

// Len is how many spans there are.
func (x *Index[V]) Len() int { return len(x.points) + x.ranges }

// Entry finds the entry of a span, or makes it, with a zero value. The span must not be empty; it
// is copied.
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

// Delete removes an entry. One that was removed already must not be.
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

// priority is a function of the span that cannot be predicted from outside, so that the tree is as
// deep as a random one whatever the spans, and whatever the order in which they come.
func (x *Index[V]) priority(start, end string) uint64 {
	var h maphash.Hash
	h.SetSeed(x.seed)
	_, _ = h.WriteString(start)
	_ = h.WriteByte(0xff)
	_, _ = h.WriteString(end)
	return h.Sum64()
}
