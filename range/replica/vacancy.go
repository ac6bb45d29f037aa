package replica

import (
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/mvcc"
)

// Deleted keys keep their tombstones until the GC window is over. So that each scan of a queue need
// not walk over all that was taken from the queue within the window, a replica remembers spans in
// which nothing has a value (range/mvcc/vacant). The memory is the replica's own: leaders and
// followers fill it by the scans that they serve, and correct it by what they apply.
//
// INVARIANT: a read takes the vacant spans when all that is ever written at or below its timestamp
// is applied: at the earliest when it opens its iterator (read.go, closed_read.go).

// tellVacant tells the memory what is about to be committed, if anything is remembered or learned.
// The caller calls vacant.End afterwards.
func (r *Replica) tellVacant(batch *engine.StateBatch, c *changes) {
	if !r.vacant.Begin() {
		return
	}
	// A partition that splits or merges has another span, and what is in a table is in no batch.
	writes, known := mvcc.Written(batch)
	if !known || c.split != nil || c.consumption != nil || c.table != nil {
		r.vacant.Reset()
		return
	}
	r.vacant.Wrote(writes)
}
