package replica

import (
	"fmt"
	"iter"
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// spanTable is which replica of a node has which span of internal keys in the state. A replica that
// is to be filled has none. What a snapshot brings is claimed before it is staged: so no two
// replicas ever have the same key, and what is removed with one is no other's.
//
// A snapshot may claim what other replicas have, if its partition has consumed theirs: it takes
// their place when it is installed.
type spanTable struct {
	mu    sync.Mutex
	owned map[keys.PartitionID]*clusterpb.Partition
	// byStart are the owned ones that do not overlap, by the start of their spans; others are in
	// odd. There are few of these, and not for long: what is left over, or has yet to split.
	byStart tree.Tree[string, *clusterpb.Partition]
	odd     map[keys.PartitionID]*clusterpb.Partition
	claimed map[*spanClaim]struct{}
}

// spanClaim is the span of a snapshot that is being received, or is to be installed.
type spanClaim struct {
	id   keys.PartitionID
	span keys.Span
}

// own notes that a partition has the span of its descriptor here, instead of the one before.
func (t *spanTable) own(d *clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownLocked(d)
}

func (t *spanTable) ownLocked(d *clusterpb.Partition) {
	if t.owned == nil {
		t.owned = make(map[keys.PartitionID]*clusterpb.Partition)
		t.byStart = tree.NewOrdered[string, *clusterpb.Partition]()
		t.odd = make(map[keys.PartitionID]*clusterpb.Partition)
	}
	id := keys.PartitionID(d.GetId())
	t.disownLocked(id)
	t.owned[id] = d
	for range t.inOrderLocked(keys.PartitionSpan(d)) {
		t.odd[id] = d
		return
	}
	e := t.byStart.Edit()
	e.Set(string(d.Start), d)
	t.byStart = e.Tree()
}

// disownLocked forgets what a partition has.
func (t *spanTable) disownLocked(id keys.PartitionID) {
	d := t.owned[id]
	if d == nil {
		return
	}
	delete(t.owned, id)
	if _, odd := t.odd[id]; odd {
		delete(t.odd, id)
		return
	}
	e := t.byStart.Edit()
	e.Delete(string(d.Start))
	t.byStart = e.Tree()
}

// inOrderLocked iterates over those of byStart that have a part of a span.
func (t *spanTable) inOrderLocked(span keys.Span) iter.Seq[*clusterpb.Partition] {
	return func(yield func(*clusterpb.Partition) bool) {
		if t.byStart.Len() == 0 {
			return
		}
		start := string(span.Start)
		if before, ok := t.byStart.Below(start); ok &&
			keys.PartitionSpan(before).Overlaps(span) && !yield(before) {
			return
		}
		for at, d := range t.byStart.From(start) {
			if len(span.End) != 0 && at >= string(span.End) || !yield(d) {
				return
			}
		}
	}
}

// overlapsLocked iterates over the descriptors of all partitions that have a part of a span.
func (t *spanTable) overlapsLocked(span keys.Span) iter.Seq[*clusterpb.Partition] {
	return func(yield func(*clusterpb.Partition) bool) {
		for d := range t.inOrderLocked(span) {
			if !yield(d) {
				return
			}
		}
		for _, d := range t.odd {
			if keys.PartitionSpan(d).Overlaps(span) && !yield(d) {
				return
			}
		}
	}
}

// split notes that a part of a partition's span is another one's.
func (t *spanTable) split(left, right *clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownLocked(left)
	t.ownLocked(right)
}

// merge notes that a partition has what others had.
func (t *spanTable) merge(left *clusterpb.Partition, others ...*clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range others {
		t.disownLocked(keys.PartitionID(d.GetId()))
	}
	t.ownLocked(left)
}

// release notes that a partition has nothing here any more.
func (t *spanTable) release(id keys.PartitionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disownLocked(id)
}

// overlapping is another partition that has, or claims, a part of a span of internal keys, and was
// not consumed by d; 0: none. d may be nil.
func (t *spanTable) overlapping(id keys.PartitionID, span keys.Span,
	d *clusterpb.Partition) keys.PartitionID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overlappingLocked(id, span, d)
}

func (t *spanTable) overlappingLocked(id keys.PartitionID, span keys.Span,
	d *clusterpb.Partition) keys.PartitionID {
	for has := range t.overlapsLocked(span) {
		if other := keys.PartitionID(has.Id); other != id && (d == nil || !keys.Consumes(d, has)) {
			return other
		}
	}
	for c := range t.claimed {
		if c.id != id && c.span.Overlaps(span) {
			return c.id
		}
	}
	return 0
}

// consumed are the partitions that have a part of d's span here and were consumed by it.
func (t *spanTable) consumed(d *clusterpb.Partition) (all []*clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for has := range t.overlapsLocked(keys.PartitionSpan(d)) {
		if has.Id != d.Id && keys.Consumes(d, has) {
			all = append(all, has)
		}
	}
	return all
}

// claim claims the span of d for a snapshot of it, until unclaim.
func (t *spanTable) claim(d *clusterpb.Partition) (*spanClaim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, span := keys.PartitionID(d.GetId()), keys.PartitionSpan(d)
	if other := t.overlappingLocked(id, span, d); other != 0 {
		return nil, fmt.Errorf("its span %s overlaps partition %s here, which has yet to split, to "+
			"merge or to go", span, other)
	}
	if t.claimed == nil {
		t.claimed = make(map[*spanClaim]struct{})
	}
	c := &spanClaim{id, span.Clone()}
	t.claimed[c] = struct{}{}
	return c, nil
}

// unclaim ends a claim; nil is none.
func (n *Node) unclaim(c *spanClaim) {
	if c == nil {
		return
	}
	n.spans.mu.Lock()
	delete(n.spans.claimed, c)
	n.spans.mu.Unlock()
	if n.SpansChanged != nil {
		n.SpansChanged()
	}
}

// Holds says that a partition has the span of its descriptor in the state of this node although its
// replica does not open.
func (n *Node) Holds(d *clusterpb.Partition) { n.spans.own(d) }

// Released says that nothing is left of a partition in the state of this node.
func (n *Node) Released(id keys.PartitionID) { n.spans.release(id) }

// Overlapping is a partition other than id that has, or is about to have, a part of a span of
// internal keys on this node; 0: there is none.
func (n *Node) Overlapping(id keys.PartitionID, span keys.Span) keys.PartitionID {
	return n.spans.overlapping(id, span, nil)
}

// LeftHere are the descriptors, as far as is known here, of the partitions that have something on
// this node to the left of another one, in its keyspace and hash number. Their epochs may be
// earlier ones.
func (n *Node) LeftHere(of *clusterpb.Partition) (all []*clusterpb.Partition) {
	n.spans.mu.Lock()
	defer n.spans.mu.Unlock()
	before := keys.Span{Start: keys.PartitionPrefix(of), End: of.GetStart()}
	if before.Empty() {
		return nil
	}
	for d := range n.spans.overlapsLocked(before) {
		if d.Keyspace == of.GetKeyspace() && d.Hash == of.GetHash() {
			all = append(all, d)
		}
	}
	return all
}

// ConsumedHere are the partitions that a descriptor proves to have been merged into its partition,
// or into one that this came from, and that have a part of its span on this node.
func (n *Node) ConsumedHere(d *clusterpb.Partition) []*clusterpb.Partition {
	return n.spans.consumed(d)
}
