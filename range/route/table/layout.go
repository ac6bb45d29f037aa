package table

import (
	"bytes"
	"cmp"
	"container/heap"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Which partitions a table shows.
//
// Descriptors reach a sender late, twice and in any order: by the table stream, which the core
// feeds, and by the refusals of nodes, which know of a split or a merge before the core does. At
// each key that one is shown which has the highest epoch of all that the sender has heard of and
// that hold the key. The generation of the partition that holds a key only rises, so that is the
// newest.
//
// A descriptor may be shown in part, where nothing newer is known: if a partition has split, and
// only one of the halves has been heard of, the other half is still shown as the partition that it
// was part of. Asked there, that one refuses, and the refusal brings the truth. So news never make
// a hole in the table. Nor does a removal: a partition that was consumed by a merge is shown until
// what consumed it is. Only with a keyspace that is dropped its partitions go.
//
// INVARIANT: what is shown does not overlap. Where a descriptor was shown, there is one as long as
// the keyspace is not dropped.

// place is where a partition begins within its keyspace: its hash number, 0 in a range keyspace,
// and a user key.
type place struct {
	hash uint32
	key  []byte
}

func comparePlaces(a, b place) int {
	if a.hash != b.hash {
		return cmp.Compare(a.hash, b.hash)
	}
	return bytes.Compare(a.key, b.key)
}

func (p *Partition) place() place { return place{p.Hash, p.Span.Start} }

// clip is the part of a partition that is shown, in internal keys, and the partition as it was
// described.
type clip struct {
	start, end []byte
	of         *Partition
}

// start and end are of what is shown of the partition, in internal keys.
func (p *Partition) start() []byte {
	if p.clip != nil {
		return p.clip.start
	}
	return p.Descriptor.Start
}

func (p *Partition) end() []byte {
	if p.clip != nil {
		return p.clip.end
	}
	return p.Descriptor.End
}

// within is the partition as it is shown between two internal keys: itself if that is all of it.
func (p *Partition) within(start, end []byte) *Partition {
	if bytes.Equal(start, p.Descriptor.Start) && bytes.Equal(end, p.Descriptor.End) {
		return p
	}
	part := *p
	part.clip = &clip{start: start, end: end, of: p}
	n := int(p.Descriptor.PrefixLength)
	if part.Span.Start = start[n:]; !bytes.Equal(end, p.Descriptor.End) {
		part.Span.End = end[n:]
	}
	return &part
}

// newerEpoch reports whether descriptor a is of a later epoch than b: span generation first, then
// membership.
func newerEpoch(a, b *clusterpb.Partition) bool { return compareEpochs(a, b) > 0 }

func compareEpochs(a, b *clusterpb.Partition) int {
	return keys.CompareEpochs(a, b)
}

// before says that p is shown where o is described as well.
func (p *Partition) before(o *Partition) bool {
	// Sound descriptors of one epoch do not overlap; that of others does not depend on the order.
	return cmp.Or(compareEpochs(p.Descriptor, o.Descriptor), cmp.Compare(o.ID, p.ID)) > 0
}

// layout is how the partitions of a keyspace lie beside one another. Its owner changes it; what
// shown is at one moment is a version of its own.
type layout struct {
	// shown do not overlap; there may be holes, where nothing was ever heard of.
	shown tree.Tree[place, *Partition]
	// clipped are the partitions that are not shown in whole, and in how many parts each is. There
	// are few, and not for long.
	clipped map[*Partition]int
	// joints counts those that begin where the one before ends; the first one, where the keyspace
	// begins.
	joints int
}

func newLayout() *layout {
	return &layout{shown: tree.New[place, *Partition](comparePlaces),
		clipped: make(map[*Partition]int)}
}

// region is a span of internal keys in which the layout changes, and what is new there.
type region struct {
	at         place
	start, end []byte
	in         []*Partition
}

// change puts partitions in, which are new, and takes others out. It returns the partitions that
// are not shown any more, or never were.
func (l *layout) change(in, out []*Partition) (gone []*Partition) {
	e := l.shown.Edit()
	leave := make(map[*Partition]bool, len(out))
	for _, p := range out {
		leave[p] = true
	}
	for _, r := range l.regions(in, out) {
		gone = append(gone, l.lay(e, r, leave)...)
	}
	l.shown = e.Tree()
	return gone
}

// regions are where partitions come or go, each as large as what is shown there now. They do not
// overlap.
func (l *layout) regions(in, out []*Partition) (all []region) {
	if l.shown.Len() == 0 && len(in) > 0 {
		first := slices.MinFunc(in, byStart)
		last := slices.MaxFunc(in, func(a, b *Partition) int {
			return bytes.Compare(a.Descriptor.End, b.Descriptor.End)
		})
		return append(all, region{at: first.place(), start: first.Descriptor.Start,
			end: last.Descriptor.End, in: in})
	}
	all = make([]region, 0, len(in)+len(out))
	for i, list := range [2][]*Partition{in, out} {
		for j, p := range list {
			r := region{at: p.place(), start: p.Descriptor.Start, end: p.Descriptor.End}
			if i == 0 {
				r.in = list[j : j+1 : j+1]
			}
			for o := range overlapping(l.shown, r.at, r.start, r.end) {
				if bytes.Compare(o.start(), r.start) < 0 {
					r.at, r.start = o.place(), o.start()
				}
				if bytes.Compare(o.end(), r.end) > 0 {
					r.end = o.end()
				}
			}
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b region) int { return bytes.Compare(a.start, b.start) })
	merged := all[:0]
	for _, r := range all {
		if n := len(merged); n > 0 && bytes.Compare(r.start, merged[n-1].end) < 0 {
			last := &merged[n-1]
			last.in = append(last.in, r.in...)
			if bytes.Compare(r.end, last.end) > 0 {
				last.end = r.end
			}
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

// overlapping iterates over the partitions that hold keys of a span of internal keys, which begins
// at a place.
func overlapping(shown tree.Tree[place, *Partition], at place,
	start, end []byte) func(yield func(*Partition) bool) {
	return func(yield func(*Partition) bool) {
		if before, ok := shown.Below(at); ok && bytes.Compare(before.end(), start) > 0 &&
			!yield(before) {
			return
		}
		for _, o := range shown.From(at) {
			if bytes.Compare(o.start(), end) >= 0 || !yield(o) {
				return
			}
		}
	}
}

// lay lays a region anew.
func (l *layout) lay(e *tree.Edit[place, *Partition], r region,
	leave map[*Partition]bool) (gone []*Partition) {
	// The partitions that are, or may come, into the region; shown are the parts that were there.
	of := slices.Clone(r.in)
	var parts, clipped []*Partition
	for o := range overlapping(e.View(), r.at, r.start, r.end) {
		parts = append(parts, o)
		if o.clip == nil {
			of = append(of, o)
		} else if !slices.Contains(clipped, o.clip.of) {
			clipped = append(clipped, o.clip.of)
		}
	}
	of = append(of, clipped...)
	for _, o := range parts {
		l.take(e, o)
	}
	stay := slices.DeleteFunc(slices.Clone(of), func(p *Partition) bool { return leave[p] })
	for _, part := range outline(stay, r.start, r.end) {
		l.put(e, part)
	}
	for _, p := range of {
		if !l.isIn(e.View(), p) {
			gone = append(gone, p)
		}
	}
	return gone
}

// shows reports whether a partition, as it was described, is shown, in whole or in part.
func (l *layout) shows(p *Partition) bool { return l.isIn(l.shown, p) }

func (l *layout) isIn(shown tree.Tree[place, *Partition], p *Partition) bool {
	if l.clipped[p] > 0 {
		return true
	}
	o, _ := shown.Get(p.place())
	return o == p
}

// outline is what is shown between two internal keys of partitions that may overlap, in order.
func outline(of []*Partition, start, end []byte) (parts []*Partition) {
	if len(of) == 1 {
		return append(parts, of[0].within(later(of[0].Descriptor.Start, start),
			earlier(of[0].Descriptor.End, end)))
	}
	slices.SortFunc(of, byStart)
	var here byEpoch // those that have begun
	var last *Partition
	var from, at []byte
	flush := func() {
		if last != nil {
			parts = append(parts, last.within(from, at))
			last = nil
		}
	}
	for at = start; ; {
		for len(of) > 0 && bytes.Compare(of[0].Descriptor.Start, at) <= 0 {
			heap.Push(&here, of[0])
			of = of[1:]
		}
		for len(here) > 0 && bytes.Compare(here[0].Descriptor.End, at) <= 0 {
			heap.Pop(&here)
		}
		next := end
		if len(of) > 0 {
			next = earlier(of[0].Descriptor.Start, end)
		}
		var top *Partition
		if len(here) > 0 {
			top = here[0]
			next = earlier(top.Descriptor.End, next)
		}
		if top != last {
			flush()
			last, from = top, at
		}
		if at = next; bytes.Compare(at, end) >= 0 {
			flush()
			return parts
		}
	}
}

func byStart(a, b *Partition) int { return bytes.Compare(a.Descriptor.Start, b.Descriptor.Start) }

func earlier(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return a
	}
	return b
}

func later(a, b []byte) []byte {
	if bytes.Compare(a, b) > 0 {
		return a
	}
	return b
}

// byEpoch is a heap of partitions: the one that is shown before all others comes first.
type byEpoch []*Partition

func (h byEpoch) Len() int           { return len(h) }
func (h byEpoch) Less(i, j int) bool { return h[i].before(h[j]) }
func (h byEpoch) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *byEpoch) Push(x any) { *h = append(*h, x.(*Partition)) }

// Pop implements heap.Interface.
func (h *byEpoch) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

// put shows a partition, or a part of one, that overlaps with no other.
func (l *layout) put(e *tree.Edit[place, *Partition], p *Partition) {
	before, after := neighbours(e.View(), p)
	l.joints += joint(before, p) + joint(p, after) - joint(before, after)
	e.Set(p.place(), p)
	if p.clip != nil {
		l.clipped[p.clip.of]++
	}
}

// take shows a partition, or a part of one, no more.
func (l *layout) take(e *tree.Edit[place, *Partition], p *Partition) {
	before, after := neighbours(e.View(), p)
	l.joints -= joint(before, p) + joint(p, after) - joint(before, after)
	e.Delete(p.place())
	if p.clip != nil {
		if l.clipped[p.clip.of]--; l.clipped[p.clip.of] == 0 {
			delete(l.clipped, p.clip.of)
		}
	}
}

// neighbours are the partitions before and after p; nil where there is none.
func neighbours(shown tree.Tree[place, *Partition], p *Partition) (before, after *Partition) {
	before, _ = shown.Below(p.place())
	for _, o := range shown.From(p.place()) {
		if o != p {
			return before, o
		}
	}
	return before, nil
}

// joint is 1 if b begins where a ends, or, without a, where the keyspace begins. The last partition
// of a hash number ends where the next number begins: there is no key between, but the internal
// keys need not be equal (the number 0x00ff ends at 0x01, and 0x0100 begins at that).
func joint(a, b *Partition) int {
	switch {
	case b == nil:
		return 0
	case a == nil:
		if b.Hash > 0 || len(b.Span.Start) > 0 {
			return 0
		}
		return 1
	case bytes.Equal(a.end(), b.start()),
		len(a.Span.End) == 0 && len(b.Span.Start) == 0 && a.Hash+1 == b.Hash:
		return 1
	}
	return 0
}

// keyspace makes a keyspace of the layout as it is now.
func (l *layout) keyspace(id keys.KeyspaceID, info *clusterpb.Keyspace, followed bool) *Keyspace {
	k := &Keyspace{ID: id, Info: info, shown: l.shown, followed: followed}
	if last, ok := l.shown.Last(); ok {
		k.complete = l.joints == l.shown.Len() && len(last.Span.End) == 0 &&
			(!k.Hashed() || last.Hash+1 == info.HashPartitions)
	}
	return k
}
