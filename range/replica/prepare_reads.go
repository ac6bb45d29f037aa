package replica

import (
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A Prepare says which of its keys the transaction has read, and when. They are compared as it is
// evaluated. If one was written since, the transaction has to run again, and hears so before it has
// a lock that others would wait for. The same if another transaction has locked one: when that lock
// is gone, the key will have been written, so it would wait for nothing. What is the same stays so
// for as long as the lock stands, and needs no refresh.
//
// An attempt of the request that comes late may acquire locks after another one was answered with a
// conflict. They are those of a transaction that is aborted.

// readInVain says that a key that a transaction has read is about to be written by another one. An
// earlier attempt of the same transaction writes nothing any more.
func readInVain(m *kvpb.Mutation, l *lock, of *txn.Info) bool {
	other := l.Transaction
	return m.Read && other.Known.State != kvpb.TransactionState_ABORTED &&
		!of.ID.SameTransaction(other.ID)
}

// conflictWith is the answer to a write that another transaction's lock makes vain.
func (r *Replica) conflictWith(q *kvpb.Request, key []byte, other txn.ID) *kvpb.Response {
	r.node.Metrics.conflicts.Inc()
	response := newError(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: key %s was read, and transaction %s has locked it since and is about to write "+
			"it; run the transaction again", r.id, keys.Pretty(key), other)
	response.Error.Conflict = &kvpb.Conflict{Key: key, Transaction: other.Bytes()}
	return response
}

// readsGood says whether what is to be compared by itself, before any key, is good; otherwise it
// has answered.
func (e *evaluation) readsGood(w *write, c *kvpb.PrepareRequest) bool {
	r, q, at := e.r, w.pending.Request, rpc.FromTimestamp(c.GetReadAt())
	if at.IsZero() {
		return true
	}
	if l := c.GetLeadership(); l != nil && !e.isLeadership(l) {
		e.answerRead(w, r.leadershipError(q, firstRead(c)), 0)
		return false
	}
	if refusal := e.ReadsTooOld(q, at); refusal != nil {
		e.refuse(w, refusal)
		return false
	}
	return true
}

func firstRead(c *kvpb.PrepareRequest) *kvpb.ReadSet {
	for _, m := range c.GetMutations() {
		if m.Read {
			return &kvpb.ReadSet{Keys: [][]byte{m.Key}}
		}
	}
	return nil
}
