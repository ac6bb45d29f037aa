package replica

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction that was aborted on request has no locks any more, and its record cannot be found by
// its id alone. So the leader remembers which those were, for a request that is repeated: it reads
// their records then. What it forgets is told as what is not known.

// maxRequested is how many are remembered.
const maxRequested = 32

// rememberRequested notes that a transaction was asked to be aborted.
func (r *Replica) rememberRequested(of txn.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.ContainsFunc(r.mu.requested, func(x txn.Info) bool { return x.ID == of.ID }) {
		return
	}
	if len(r.mu.requested) == maxRequested {
		r.mu.requested = slices.Delete(r.mu.requested, 0, 1)
	}
	of.Anchor = bytes.Clone(of.Anchor)
	r.mu.requested = append(r.mu.requested, of)
}

// requestedAbort is a transaction without locks here that was aborted on request; nil if none is
// remembered by that id, or its record is not applied.
func (r *Replica) requestedAbort(id []byte) (*kvpb.LiveTransaction, error) {
	r.mu.Lock()
	i := slices.IndexFunc(r.mu.requested, func(x txn.Info) bool { return bytes.Equal(x.ID[:], id) })
	if i < 0 {
		r.mu.Unlock()
		return nil, nil
	}
	of := r.mu.requested[i]
	r.mu.Unlock()
	record, err := r.storedRecord(txn.RecordKey(keys.InternalKey(r.Descriptor(), of.Anchor), of.ID))
	if err != nil || record == nil || record.State != kvpb.TransactionState_ABORTED {
		return nil, err
	}
	return &kvpb.LiveTransaction{Transaction: of.Proto(), Record: record.Status()}, nil
}
