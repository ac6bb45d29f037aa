package keycount

import (
	"slices"
	"sort"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Vacant are spans without keys, in order. A Vacant never changes. The zero value has no spans.
type Vacant struct{ spans []vacant }

// vacant is a span without keys at all revisions from since on; an empty end means no upper end.
type vacant struct {
	start, end string
	since      uint64
	// passed is the approximate number of deleted keys in the span.
	passed int
}

// End reports whether a key lies in a span that is vacant at a revision, and returns the end of the
// span; nil if the span has no end.
func (v Vacant) End(key []byte, revision uint64) (end []byte, vacant bool) {
	i := v.from(string(key))
	if i == len(v.spans) || v.spans[i].start > string(key) || v.spans[i].since > revision {
		return nil, false
	}
	if end := v.spans[i].end; end != "" {
		return []byte(end), true
	}
	return nil, true
}

// from returns the index of the first span that ends above a key.
func (v Vacant) from(key string) int {
	return sort.Search(len(v.spans), func(i int) bool { return below(key, v.spans[i].end) })
}

// Vacant returns the known vacant spans. If the caller has opened a state before, no returned span
// is vacant at a revision at which that state has a key in the span.
func (b *Blocks) Vacant() Vacant {
	if known := b.vacant.Load(); known != nil {
		return *known
	}
	return Vacant{}
}

// VacantAfter is the number of consecutive deleted keys after which a walk calls FoundVacant.
func (b *Blocks) VacantAfter() int { return b.limits.VacantAfter }

// FoundVacant records that a span has no key at a revision. A walk has passed `passed` deleted keys
// in it. If the changes since the revision are unknown, the span is not remembered.
func (b *Blocks) FoundVacant(span keys.Span, revision uint64, passed int) {
	if span.Empty() || max(len(span.Start), len(span.End)) > b.limits.BoundLength {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.mu.recent.covers(revision) {
		return
	}
	found := Vacant{[]vacant{{string(span.Start), string(span.End), revision, passed}}}
	b.mu.recent.created(revision, func(key string) { found = found.without(key) })
	all := b.Vacant()
	for _, one := range found.spans {
		all = all.with(one)
	}
	b.storeVacantLocked(all)
}

// storeVacantLocked stores the vacant spans. It takes over `all`. Above the limit it drops the
// spans with the fewest deleted keys.
func (b *Blocks) storeVacantLocked(all Vacant) {
	for len(all.spans) > b.limits.Vacant {
		least := 0
		for i := range all.spans {
			if all.spans[i].passed < all.spans[least].passed {
				least = i
			}
		}
		all.spans = slices.Delete(all.spans, least, least+1)
	}
	b.vacant.Store(&all)
}

// createdLocked removes a created key from the vacant spans.
func (b *Blocks) createdLocked(key string) {
	before := b.Vacant()
	if i := before.from(key); i == len(before.spans) || before.spans[i].start > key {
		return
	}
	b.storeVacantLocked(before.without(key))
}

// without returns the spans that are left when a key is created. The numbers of deleted keys on
// either side of the key are unknown.
func (v Vacant) without(key string) Vacant {
	i := v.from(key)
	if i == len(v.spans) || v.spans[i].start > key {
		return v
	}
	left, right := v.spans[i], v.spans[i]
	left.end, right.start = key, key+"\x00"
	left.passed, right.passed = left.passed/2, right.passed/2
	var parts []vacant
	if left.start < left.end {
		parts = append(parts, left)
	}
	if below(right.start, right.end) {
		parts = append(parts, right)
	}
	return Vacant{slices.Replace(slices.Clone(v.spans), i, i+1, parts...)}
}

// with returns the spans with one more, which replaces spans that overlap it.
func (v Vacant) with(one vacant) Vacant {
	var next []vacant
	for _, known := range v.spans {
		if left := known; left.start < one.start {
			left.end = lower(left.end, one.start)
			next = append(next, left)
		}
	}
	next = append(next, one)
	for _, known := range v.spans {
		if right := known; one.end != "" && below(one.end, right.end) {
			right.start = max(right.start, one.end)
			next = append(next, right)
		}
	}
	return Vacant{next}
}
