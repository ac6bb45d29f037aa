package replica

import "github.com/tidemarkdb/tidemark/txn"

// recordName names a record of a partition: two may have the same id, at different anchors.
type recordName struct {
	id     txn.ID
	anchor string
}

func nameOf(of *txn.Info) recordName { return recordName{of.ID, string(of.Anchor)} }

// records are the transaction records that are in an entry which is proposed, or being filled, and
// not applied. Replica.mu guards them.
type records struct {
	// proposed is nil if there are none.
	proposed map[recordName]proposedRecord
}

type proposedRecord struct {
	record *txn.Record
	// sequence is of the entry that carries it.
	sequence uint64
}

// propose notes a record that an entry carries.
func (r *records) propose(name recordName, record *txn.Record, sequence uint64) {
	if r.proposed == nil {
		r.proposed = make(map[recordName]proposedRecord)
	}
	r.proposed[name] = proposedRecord{record, sequence}
}

// applied takes the records of an applied entry out of those proposed.
func (r *records) applied(p *pendingEntry) {
	for _, name := range p.records {
		if r.proposed[name].sequence == p.sequence {
			delete(r.proposed, name)
		}
	}
	if len(r.proposed) == 0 {
		r.proposed = nil // maps do not shrink
	}
}
