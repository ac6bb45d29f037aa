package lifecycle

import (
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/table"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// leftOver reports whether a replica is an orphan: its partition was merged into another one when
// that had no replica here any more. So nothing here will ever consume it, and the table proves
// that it was merged: see keys.Consumes.
//
// INVARIANT: no replica here needs the orphan. A replica that needs it lies to the left of it, and
// has not come to the merge yet, so the table has a later epoch of its partition than the replica
// has.
func (n *Lifecycle) leftOver(t *table.Table, h *hosted.Replica) bool {
	d := h.Replica.Descriptor()
	if d.GetMembership() == 0 {
		d = h.Listed.Load() // the replica was to be filled
	}
	return n.subsumedInTable(t, d)
}

func (n *Lifecycle) subsumedInTable(t *table.Table, d *clusterpb.Partition) bool {
	by := t.At(d.GetKeyspace(), d.GetStart())
	if by == nil || !keys.Subsumes(by, d) {
		return false
	}
	if n.openings.any() {
		return false // that replica may need h
	}
	for _, o := range n.Shared.Spans.LeftOf(d) {
		id := keys.PartitionID(o.GetId())
		if h := n.Replicas.Get(id); h != nil && h.Replica.Descriptor().GetMembership() != 0 {
			o = h.Replica.Descriptor()
		}
		if listed := t.Partition(id); listed == nil || keys.CompareEpochs(o, listed) < 0 {
			return false
		}
	}
	return true
}

// brokenLeftOver is leftOver for a replica that does not open.
func (n *Lifecycle) brokenLeftOver(t *table.Table, b brokenReplica) bool {
	d, err := n.heldBy(b.identity)
	if d == nil || err != nil {
		d = &clusterpb.Partition{}
		if proto.Unmarshal(b.identity.Descriptor, d) != nil {
			return false
		}
	}
	return n.subsumedInTable(t, d)
}
