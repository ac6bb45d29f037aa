package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// A Prepare says which of its keys the transaction has read, and when. Evaluation compares them. If
// a key was written since, the transaction must run again, and learns so before it has a lock for
// which others would wait. The same holds if another transaction has locked a key: when that lock
// is gone, the key will have been written, so waiting would be useless. A key that is unchanged
// stays so for as long as the lock stands, and needs no refresh.
//
// A late attempt of the request may acquire locks after another attempt was answered with a
// conflict. Those locks belong to a transaction that is aborted.

// readInVain reports whether another transaction is about to write a key that a transaction has
// read. A lock of an earlier attempt of the same transaction does not count: it is not written any
// more.
func readInVain(m *kvpb.Mutation, l *concurrency.Lock, of txn.ID) bool {
	other := l.Transaction
	return m.Read && other.Known.State != kvpb.TransactionState_ABORTED &&
		!of.SameTransaction(other.ID)
}

// LockedSinceRead is the answer to a write whose transaction must run again because of another
// transaction's lock.
func LockedSinceRead(partition keys.PartitionID, q *kvpb.Request, key []byte,
	other txn.ID) *kvpb.Response {
	response := request.Refuse(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: key %s was read, and transaction %s has locked it since and is about to write "+
			"it; run the transaction again", partition, keys.Pretty(key), other)
	response.Error.Conflict = &kvpb.Conflict{Key: key, Transaction: other.Bytes()}
	return response
}

// readsGood checks the reads that do not belong to a mutation; if they are not valid any more it
// has answered, and returns false.
func (p *preparation) readsGood() bool {
	e, at := p.e, wire.FromTimestamp(p.c.GetReadAt())
	if at.IsZero() {
		return true
	}
	if l := p.c.GetLeadership(); l != nil && !e.Coordination.IsLeadership(l) {
		e.Answer(e.leaderChanged(p.q, firstRead(p.c)), 0)
		return false
	}
	if refusal := e.readsTooOld(p.q, at); refusal != nil {
		e.Refuse(refusal)
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

// Conflict makes the answer that something which a transaction read has changed, and counts the
// conflict.
func (e *Evaluation) Conflict(q *kvpb.Request, key []byte, at hlc.Timestamp) *kvpb.Response {
	e.Coordination.Count(Conflict)
	return Changed(e.Descriptor, q, key, at)
}

// readsTooOld refuses reads at a timestamp below the garbage collection threshold: a tombstone may
// have been collected together with the versions that it hid.
func (e *Evaluation) readsTooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
	threshold := e.Coordination.Threshold()
	if !at.Less(threshold) {
		return nil
	}
	return Refusing(request.Refuse(q, kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
		"partition %s: what was read at %s cannot be validated any more, versions are kept since %s",
		e.ID(), at, threshold), at, threshold)
}

// leaderChanged makes the answer that reads under volatile locks are not valid any more because the
// leadership has changed, and counts it.
func (e *Evaluation) leaderChanged(q *kvpb.Request, reads *kvpb.ReadSet) *kvpb.Response {
	e.Coordination.Count(Conflict)
	return LeaderChanged(e.Descriptor, q, reads)
}
