package keycount

import (
	"slices"
	"sort"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// Vacant are spans without keys, in order. It is never changed. The zero value has none.
type Vacant struct{ spans []vacant }

// vacant is a span that has no key at any revision from since on; an empty end is none.
type vacant struct {
	start, end string
	since      uint64
	// passed is about how many deleted keys a walk would pass in the span.
	passed int
}

// End reports whether a key lies in a vacant span of a revision, and where the span ends; nil:
// nowhere.
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

// from is the first span that ends above a key.
func (v Vacant) from(key string) int {
	return sort.Search(len(v.spans), func(i int) bool { return below(key, v.spans[i].end) })
}

// Vacant returns the known vacant spans. For a caller that has opened a state before, no span is
// vacant at a revision at which that state has a key in it.
func (b *Blocks) Vacant() Vacant {
	if known := b.vacant.Load(); known != nil {
		return *known
	}
	return Vacant{}
}

// VacantAfter is how many deleted keys in a row a walk passes before it says so.
func (b *Blocks) VacantAfter() int { return b.limits.VacantAfter }

// FoundVacant notes that a span has no key at a revision: a walk has passed so many deleted ones.
// If the changes since the revision are not known, nothing is remembered.
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

// storeVacantLocked makes spans, which are the caller's own, the ones that are known. Where there
// are too many, those go that save least.
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

// createdLocked takes a key that is created out of what is vacant.
func (b *Blocks) createdLocked(key string) {
	before := b.Vacant()
	if i := before.from(key); i == len(before.spans) || before.spans[i].start > key {
		return
	}
	b.storeVacantLocked(before.without(key))
}

// without is what is left of the spans when a key is created. How many deleted keys lie on either
// side of it is not known.
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

// with is the spans with another one, which takes the place of what overlaps it.
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
