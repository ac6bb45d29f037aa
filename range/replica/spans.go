package replica

import (
	"fmt"
	"sync"

	"github.com/tidemarkdb/tidemark/range/keys"
)

// spanTable is which replica of a node has which span of internal keys in the state. A replica that
// is to be filled has none. What a snapshot brings is claimed before it is staged: so no two
// replicas ever have the same key, and what is removed with one is no other's.
type spanTable struct {
	mu      sync.Mutex
	owned   map[keys.PartitionID]keys.Span
	claimed map[*spanClaim]struct{}
}

// spanClaim is the span of a snapshot that is being received, or is to be installed.
type spanClaim struct {
	id   keys.PartitionID
	span keys.Span
}

// own notes that a partition has a span here, instead of the one before.
func (t *spanTable) own(id keys.PartitionID, span keys.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownLocked(id, span)
}

func (t *spanTable) ownLocked(id keys.PartitionID, span keys.Span) {
	if t.owned == nil {
		t.owned = make(map[keys.PartitionID]keys.Span)
	}
	t.owned[id] = span
}

// split notes that a part of a partition's span is another one's.
func (t *spanTable) split(id keys.PartitionID, left keys.Span, child keys.PartitionID,
	right keys.Span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ownLocked(id, left)
	t.ownLocked(child, right)
}

// release notes that a partition has nothing here any more.
func (t *spanTable) release(id keys.PartitionID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.owned, id)
}

// overlapping is another partition that has, or claims, a part of a span; 0: none.
func (t *spanTable) overlapping(id keys.PartitionID, span keys.Span) keys.PartitionID {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.overlappingLocked(id, span)
}

func (t *spanTable) overlappingLocked(id keys.PartitionID, span keys.Span) keys.PartitionID {
	for other, has := range t.owned {
		if other != id && has.Overlaps(span) {
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

// claim claims a span for a snapshot of a partition, until unclaim.
func (t *spanTable) claim(id keys.PartitionID, span keys.Span) (*spanClaim, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if other := t.overlappingLocked(id, span); other != 0 {
		return nil, fmt.Errorf("its span %s overlaps partition %s here, which has yet to split or to go",
			span, other)
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

// Holds says that a partition has a span in the state of this node although its replica does not
// open; nil: it is not known to have any.
func (n *Node) Holds(id keys.PartitionID, span *keys.Span) {
	if span != nil {
		n.spans.own(id, *span)
	}
}

// Released says that nothing is left of a partition in the state of this node.
func (n *Node) Released(id keys.PartitionID) { n.spans.release(id) }

// Overlapping is a partition other than id that has, or is about to have, a part of a span of
// internal keys on this node; 0: there is none.
func (n *Node) Overlapping(id keys.PartitionID, span keys.Span) keys.PartitionID {
	return n.spans.overlapping(id, span)
}
