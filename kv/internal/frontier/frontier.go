package frontier

import (
	"bytes"
	"slices"
	"sort"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Part is a span of keys with one known timestamp.
type Part struct {
	// Span is never empty, and has an end.
	Span keys.Span
	// Resolved is the known timestamp: all changes of its keys at or below it are known.
	Resolved hlc.Timestamp
	// Head is the known timestamp of the key Span.Start, if it is above Resolved; otherwise zero.
	Head hlc.Timestamp
	// Asked is set while a request for the part is running. The part is neither cut nor joined
	// then.
	Asked bool
}

// Frontier is the position of a feed. New makes it.
type Frontier struct{ parts []Part }

// New returns a frontier over spans, in ascending order and each with an end, whose changes up to a
// timestamp are known.
func New(at hlc.Timestamp, spans ...keys.Span) *Frontier {
	f := &Frontier{parts: make([]Part, 0, len(spans))}
	for _, s := range spans {
		if !s.Empty() {
			f.parts = append(f.parts, Part{Span: s.Clone(), Resolved: at})
		}
	}
	return f
}

// Len is the number of parts.
func (f *Frontier) Len() int { return len(f.parts) }

// Min returns the timestamp up to which all changes are known; zero without keys.
func (f *Frontier) Min() (least hlc.Timestamp) {
	for i := range f.parts {
		if r := f.parts[i].Resolved; i == 0 || r.Less(least) {
			least = r
		}
	}
	return least
}

// At returns the part that begins at a key; nil if there is none. It is valid until the frontier
// changes; the caller may set only Asked.
func (f *Frontier) At(start []byte) *Part {
	if i := f.holding(start); i < len(f.parts) && bytes.Equal(f.parts[i].Span.Start, start) {
		return &f.parts[i]
	}
	return nil
}

// Within returns the parts with keys of a span. They are valid until the frontier changes, and must
// not be changed.
func (f *Frontier) Within(span keys.Span) []Part {
	first := f.holding(span.Start)
	last := first
	for last < len(f.parts) && f.parts[last].Span.Overlaps(span) {
		last++
	}
	return f.parts[first:last]
}

// holding is the index of the part with a key, or of the next part.
func (f *Frontier) holding(key []byte) int {
	return sort.Search(len(f.parts), func(i int) bool {
		return bytes.Compare(key, f.parts[i].Span.End) < 0
	})
}

// Cut cuts the part with a key at the key, unless no part has the key, or the part is asked. It
// reports whether it has made a new part.
func (f *Frontier) Cut(key []byte) bool {
	i := f.holding(key)
	if i == len(f.parts) || f.parts[i].Asked ||
		bytes.Compare(key, f.parts[i].Span.Start) <= 0 {
		return false
	}
	f.cut(i, bytes.Clone(key))
	if invariants.Enabled {
		f.checkInvariants()
	}
	return true
}

// cut cuts part i at a key within it.
func (f *Frontier) cut(i int, key []byte) {
	right := f.parts[i]
	right.Span.Start, right.Head = key, hlc.Timestamp{}
	f.parts[i].Span.End = key
	f.parts[i].settle()
	f.parts = slices.Insert(f.parts, i+1, right)
}

// settle raises Resolved to Head if the part has no other key.
func (p *Part) settle() {
	if p.Head.LessEq(p.Resolved) {
		p.Head = hlc.Timestamp{}
	}
	if n := len(p.Span.Start); !p.Head.IsZero() && len(p.Span.End) == n+1 && p.Span.End[n] == 0 &&
		bytes.Equal(p.Span.End[:n], p.Span.Start) {
		p.Resolved, p.Head = p.Head, hlc.Timestamp{}
	}
}

// Advance sets the known timestamp of the part that begins at start, up to the key end; an end
// outside the part stands for the part's end. The part is no longer asked.
func (f *Frontier) Advance(start, end []byte, resolved hlc.Timestamp) {
	i := f.holding(start)
	if i == len(f.parts) || !bytes.Equal(f.parts[i].Span.Start, start) {
		return
	}
	if invariants.Enabled {
		defer f.checkInvariantKnown(f.Min(), f.parts[i])
	}
	p := &f.parts[i]
	p.Asked = false
	if bytes.Compare(end, p.Span.Start) <= 0 {
		return
	}
	if bytes.Compare(end, p.Span.End) < 0 {
		f.cut(i, bytes.Clone(end))
		p = &f.parts[i]
	}
	p.Resolved = hlc.Max(p.Resolved, resolved)
	p.settle()
}

// AdvanceKey sets the known timestamp of the first key of the part that begins at start.
func (f *Frontier) AdvanceKey(start []byte, known hlc.Timestamp) {
	if p := f.At(start); p != nil {
		if invariants.Enabled {
			defer f.checkInvariantKnown(f.Min(), *p)
		}
		p.Head = hlc.Max(p.Head, known)
		p.settle()
	}
}

// Back lowers all known timestamps to a timestamp. Parts stay asked, but the answers to requests
// that began above it cannot be used.
func (f *Frontier) Back(to hlc.Timestamp) {
	for i := range f.parts {
		p := &f.parts[i]
		p.Resolved, p.Head = hlc.Min(p.Resolved, to), hlc.Min(p.Head, to)
		p.settle()
	}
}

// Join joins neighbours within a span that have the same known timestamp.
func (f *Frontier) Join(span keys.Span) {
	first := f.holding(span.Start)
	kept := first
	i := first
	for ; i < len(f.parts) && f.parts[i].Span.Overlaps(span); i++ {
		p := f.parts[i]
		if kept > first {
			if l := &f.parts[kept-1]; !l.Asked && !p.Asked && l.Resolved == p.Resolved &&
				p.Head.IsZero() && bytes.Equal(l.Span.End, p.Span.Start) &&
				span.ContainsSpan(l.Span) && span.ContainsSpan(p.Span) {
				l.Span.End = p.Span.End
				continue
			}
		}
		f.parts[kept] = p
		kept++
	}
	f.parts = slices.Delete(f.parts, kept, i)
	if invariants.Enabled {
		f.checkInvariants()
	}
}

// checkInvariants checks that the parts are in order and do not overlap.
func (f *Frontier) checkInvariants() {
	if len(f.parts) > 16*invariants.Small {
		return
	}
	for i := range f.parts {
		p := &f.parts[i]
		invariants.Check(!p.Span.Empty() && len(p.Span.End) > 0 &&
			(i == 0 || bytes.Compare(f.parts[i-1].Span.End, p.Span.Start) <= 0),
			"part %d of a frontier is %s, behind %s", i, p.Span, f.parts[max(i-1, 0)].Span)
		invariants.Check(p.Head.IsZero() || p.Resolved.Less(p.Head),
			"of the keys %s all is known up to %s, and of the first one up to %s", p.Span, p.Resolved,
			p.Head)
	}
}

// checkInvariantKnown checks that known timestamps have not gone back: the timestamp of all keys,
// and the timestamps of a part; before is the part's former value.
func (f *Frontier) checkInvariantKnown(all hlc.Timestamp, before Part) {
	f.checkInvariants()
	now := f.Min()
	invariants.Check(!now.Less(all), "a frontier goes back from %s to %s", all, now)
	for _, p := range f.Within(before.Span) {
		invariants.Check(!p.Resolved.Less(before.Resolved),
			"what is known of the keys %s goes back from %s to %s", p.Span, before.Resolved, p.Resolved)
	}
}
