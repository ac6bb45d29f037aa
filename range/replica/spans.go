package replica

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// spanTable is which replica of a node has which span of internal keys in the state. A replica that
// is to be filled has none. What a snapshot brings is claimed before it is staged: so no two
// replicas ever have the same key, and what is removed with one is no other's.
//
// A snapshot may claim what other replicas have, if its partition has consumed theirs: it takes
// their place when it is installed.
type spanTable struct {
	mu      sync.Mutex
	owned   map[keys.PartitionID]*clusterpb.Partition
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
	}
	t.owned[keys.PartitionID(d.GetId())] = d
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
		delete(t.owned, keys.PartitionID(d.GetId()))
	}
	t.ownLocked(left)
}

// release notes that a partition has nothing here any more.
func (t *spanTable) release(id keys.PartitionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owned, id)
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
	for other, has := range t.owned {
		if other != id && keys.PartitionSpan(has).Overlaps(span) && (d == nil || !keys.Consumes(d, has)) {
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
	for _, has := range t.owned {
		if has.Id != d.Id && keys.PartitionSpan(has).Overlaps(keys.PartitionSpan(d)) &&
			keys.Consumes(d, has) {
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
		return nil, fmt.Errorf("its span %s overlaps partition %s here, which has yet to split, to merge "+
			"or to go", span, other)
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
	for _, d := range n.spans.owned {
		if d.Keyspace == of.GetKeyspace() && d.Hash == of.GetHash() &&
			bytes.Compare(d.Start, of.GetStart()) < 0 {
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
