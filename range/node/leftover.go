package node

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// leftOver says whether a replica is of a partition that was merged into another one when that had
// no replica here any more. So nothing here will ever consume it, and the table proves that it was
// merged: see keys.Consumes.
//
// INVARIANT: no replica here needs it. One that does lies to the left of it, and has not come to
// the merge yet, so the table has a later epoch of its partition than the replica has.
func (n *Node) leftOver(t *Table, h *hosted) bool {
	return n.consumedInTable(t, h.replica.Descriptor())
}

func (n *Node) consumedInTable(t *Table, d *clusterpb.Partition) bool {
	if d.GetMembership() == 0 {
		return false // it is to be filled, and has no epoch yet
	}
	by := t.at(d.GetKeyspace(), d.GetStart())
	if by == nil || !keys.Consumes(by, d) {
		return false
	}
	for id, other := range n.replicas.all() {
		o := other.replica.Descriptor()
		if o.GetKeyspace() != d.GetKeyspace() || o.GetHash() != d.GetHash() ||
			bytes.Compare(o.GetStart(), d.GetStart()) >= 0 {
			continue
		}
		if listed := t.Partition(id); listed == nil || keys.CompareEpochs(o, listed) < 0 {
			return false
		}
	}
	return true
}
