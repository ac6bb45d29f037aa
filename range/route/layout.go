package route

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

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

// layout is how the partitions of a keyspace lie beside one another. Its owner changes it; what
// shown is at one moment is a version of its own.
type layout struct {
	// shown do not overlap; there may be holes.
	shown tree.Tree[place, *Partition]
	// hidden are those that a descriptor of a later generation has overtaken. There are few, and not
	// for long: the table stream says soon what has become of them.
	hidden []*Partition
	// joints counts those that begin where the one before ends; the first one, where the keyspace
	// begins.
	joints int
}

func newLayout() *layout { return &layout{shown: tree.New[place, *Partition](comparePlaces)} }

// newerEpoch reports whether descriptor a is of a later epoch than b: span generation first, then
// membership.
func newerEpoch(a, b *clusterpb.Partition) bool {
	if a.Generation != b.Generation {
		return a.Generation > b.Generation
	}
	return a.Membership > b.Membership
}

// change takes partitions out, and puts others in. Of those that overlap, the later generation is
// shown.
func (l *layout) change(out, in []*Partition) {
	e := l.shown.Edit()
	for _, p := range out {
		if i := slices.Index(l.hidden, p); i >= 0 {
			l.hidden = slices.Delete(l.hidden, i, i+1)
		} else {
			l.take(e, p)
		}
	}
	slices.SortStableFunc(in, func(a, b *Partition) int {
		return cmp.Or(cmp.Compare(a.Generation, b.Generation), comparePlaces(a.place(), b.place()))
	})
	for _, p := range in {
		over := overlapping(e.View(), p)
		if slices.ContainsFunc(over, func(o *Partition) bool { return o.Generation > p.Generation }) {
			l.hidden = append(l.hidden, p)
			continue
		}
		for _, o := range over {
			l.take(e, o)
		}
		l.hidden = append(l.hidden, over...)
		l.put(e, p)
	}
	// What was in their way may be gone.
	slices.SortStableFunc(l.hidden, func(a, b *Partition) int {
		return cmp.Compare(b.Generation, a.Generation)
	})
	l.hidden = slices.DeleteFunc(l.hidden, func(p *Partition) bool {
		if len(overlapping(e.View(), p)) > 0 {
			return false
		}
		l.put(e, p)
		return true
	})
	l.shown = e.Tree()
}

// overlapping are the partitions that hold keys of p's span.
func overlapping(shown tree.Tree[place, *Partition], p *Partition) (over []*Partition) {
	if before, ok := shown.Below(p.place()); ok &&
		bytes.Compare(before.Descriptor.End, p.Descriptor.Start) > 0 {
		over = append(over, before)
	}
	for _, o := range shown.From(p.place()) {
		if bytes.Compare(o.Descriptor.Start, p.Descriptor.End) >= 0 {
			break
		}
		over = append(over, o)
	}
	return over
}

// put shows a partition that overlaps with no other.
func (l *layout) put(e *tree.Edit[place, *Partition], p *Partition) {
	before, after := neighbours(e.View(), p)
	l.joints += joint(before, p) + joint(p, after) - joint(before, after)
	e.Set(p.place(), p)
}

// take shows a partition no more, if it is shown.
func (l *layout) take(e *tree.Edit[place, *Partition], p *Partition) {
	if o, _ := e.View().Get(p.place()); o != p {
		return
	}
	before, after := neighbours(e.View(), p)
	l.joints -= joint(before, p) + joint(p, after) - joint(before, after)
	e.Delete(p.place())
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

// joint is 1 if b begins where a ends, or, without a, where the keyspace begins.
func joint(a, b *Partition) int {
	switch {
	case b == nil:
		return 0
	case a == nil:
		if len(b.Span.Start) > 0 {
			return 0
		}
		return 1
	case bytes.Equal(a.Descriptor.End, b.Descriptor.Start):
		return 1
	}
	return 0
}

// keyspace makes a keyspace of the layout as it is now.
func (l *layout) keyspace(id keys.KeyspaceID, info *clusterpb.Keyspace, followed bool) *Keyspace {
	k := &Keyspace{ID: id, Info: info, shown: l.shown, followed: followed}
	if k.Hashed() {
		k.complete = l.shown.Len() == int(info.HashPartitions)
	} else if last, ok := l.shown.Last(); ok {
		k.complete = l.joints == l.shown.Len() && len(last.Span.End) == 0
	}
	return k
}
