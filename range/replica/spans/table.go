package spans

import (
	"fmt"
	"iter"
	"sync"

	"github.com/tidemarkdb/tidemark/range/invariants"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/tree"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Table maps spans of internal keys in the state database to the replicas of a node. A replica that
// is to be filled has no span. A snapshot claims its span before it is staged: so no two replicas
// ever have the same key, and the removal of one removes no key of another.
//
// A snapshot may claim spans of other replicas if its partition has consumed theirs: it takes their
// place when it is installed.
type Table struct {
	// Changed, if not nil, is called when a span that Overlapping reported as owned or claimed may
	// be free. It is set before the table is used.
	Changed func()

	mu    sync.Mutex
	owned map[keys.PartitionID]*clusterpb.Partition
	// byStart has the owned spans that do not overlap, by their starts; overlapping ones are in
	// odd. Those are few and short-lived: leftovers, or partitions that have yet to split.
	byStart tree.Tree[string, *clusterpb.Partition]
	odd     map[keys.PartitionID]*clusterpb.Partition
	claimed map[*Claim]struct{}
}

// Claim is the claim of a span for a snapshot that is being received, or is to be installed.
type Claim struct {
	id   keys.PartitionID
	span keys.Span
}

// Own notes that a partition has the span of its descriptor here, instead of its previous span. Its
// replica need not be open.
func (t *Table) Own(d *clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownLocked(d)
}

func (t *Table) ownLocked(d *clusterpb.Partition) {
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
	if invariants.Enabled && t.byStart.Len() <= invariants.Small {
		t.checkInvariantsLocked()
	}
}

// checkInvariantsLocked checks that the ordered spans have no key in common, and that each
// partition is in one place.
func (t *Table) checkInvariantsLocked() {
	var before *clusterpb.Partition
	for start, d := range t.byStart.All() {
		invariants.Check(start == string(d.Start) && t.owned[keys.PartitionID(d.Id)] == d &&
			t.odd[keys.PartitionID(d.Id)] == nil, "partition %s is in two places, or in a wrong one",
			keys.PartitionID(d.Id))
		invariants.Check(before == nil ||
			!keys.PartitionSpan(before).Overlaps(keys.PartitionSpan(d)),
			"partitions %s and %s have a part of each other's span", keys.PartitionID(before.GetId()),
			keys.PartitionID(d.Id))
		before = d
	}
	invariants.Check(t.byStart.Len()+len(t.odd) == len(t.owned),
		"%d partitions have a span in order, %d another one, and all are %d", t.byStart.Len(),
		len(t.odd), len(t.owned))
}

// disownLocked forgets the span of a partition.
func (t *Table) disownLocked(id keys.PartitionID) {
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

// inOrderLocked iterates over the partitions in byStart that overlap a span.
func (t *Table) inOrderLocked(span keys.Span) iter.Seq[*clusterpb.Partition] {
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

// overlapsLocked iterates over the descriptors of all partitions that overlap a span.
func (t *Table) overlapsLocked(span keys.Span) iter.Seq[*clusterpb.Partition] {
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

// Split notes that a part of a partition's span belongs to another one.
func (t *Table) Split(left, right *clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownLocked(left)
	t.ownLocked(right)
}

// Merge notes that a partition has the spans of others.
func (t *Table) Merge(left *clusterpb.Partition, others ...*clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, d := range others {
		t.disownLocked(keys.PartitionID(d.GetId()))
	}
	t.ownLocked(left)
}

// Release notes that a partition has no span here any more.
func (t *Table) Release(id keys.PartitionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.disownLocked(id)
}

// Overlapping returns a partition other than id that has, or has claimed, a part of a span of
// internal keys on this node; 0 if there is none.
func (t *Table) Overlapping(id keys.PartitionID, span keys.Span) keys.PartitionID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overlappingLocked(id, span, nil)
}

// overlappingLocked is Overlapping without the partitions that d, if not nil, has consumed.
func (t *Table) overlappingLocked(id keys.PartitionID, span keys.Span,
	d *clusterpb.Partition) keys.PartitionID {
	for has := range t.overlapsLocked(span) {
		if other := keys.PartitionID(has.Id); other != id && (d == nil || !keys.Subsumes(d, has)) {
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

// Subsumed returns the partitions that, by a descriptor, were merged into its partition or into one
// of its ancestors, and that have a part of its span on this node.
func (t *Table) Subsumed(d *clusterpb.Partition) (all []*clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for has := range t.overlapsLocked(keys.PartitionSpan(d)) {
		if has.Id != d.Id && keys.Subsumes(d, has) {
			all = append(all, has)
		}
	}
	return all
}

// Claim claims the span of d for a snapshot of it, until Unclaim.
func (t *Table) Claim(d *clusterpb.Partition) (*Claim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, span := keys.PartitionID(d.GetId()), keys.PartitionSpan(d)
	if other := t.overlappingLocked(id, span, d); other != 0 {
		return nil, fmt.Errorf("its span %s overlaps partition %s here, which has yet to split, to "+
			"merge or to go", span, other)
	}
	if t.claimed == nil {
		t.claimed = make(map[*Claim]struct{})
	}
	c := &Claim{id, span.Clone()}
	t.claimed[c] = struct{}{}
	return c, nil
}

// Unclaim ends a claim; c may be nil.
func (t *Table) Unclaim(c *Claim) {
	if c == nil {
		return
	}
	t.mu.Lock()
	delete(t.claimed, c)
	t.mu.Unlock()
	if t.Changed != nil {
		t.Changed()
	}
}

// LeftOf returns the descriptors, as far as they are known here, of the partitions on this node
// that lie to the left of another one, in its keyspace and hash number. Their epochs may be old.
func (t *Table) LeftOf(p *clusterpb.Partition) (all []*clusterpb.Partition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	before := keys.Span{Start: keys.PartitionPrefix(p), End: p.GetStart()}
	if before.Empty() {
		return nil
	}
	for d := range t.overlapsLocked(before) {
		if d.Keyspace == p.GetKeyspace() && d.Hash == p.GetHash() {
			all = append(all, d)
		}
	}
	return all
}
