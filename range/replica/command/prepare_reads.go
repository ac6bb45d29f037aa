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
func readInVain(m *kvpb.Mutation, l *concurrency.Lock, of txn.ID) bool {
	other := l.Transaction
	return m.Read && other.Known.State != kvpb.TransactionState_ABORTED &&
		!of.SameTransaction(other.ID)
}

// LockedSinceRead is the answer to a write that another transaction's lock makes vain.
func LockedSinceRead(partition keys.PartitionID, q *kvpb.Request, key []byte,
	other txn.ID) *kvpb.Response {
	response := request.Refuse(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: key %s was read, and transaction %s has locked it since and is about to write "+
			"it; run the transaction again", partition, keys.Pretty(key), other)
	response.Error.Conflict = &kvpb.Conflict{Key: key, Transaction: other.Bytes()}
	return response
}

// readsGood says whether what is to be compared by itself, before any key, is good; otherwise it
// has answered.
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

// Conflict says that what a transaction read has changed, and counts it.
func (e *Evaluation) Conflict(q *kvpb.Request, key []byte, at hlc.Timestamp) *kvpb.Response {
	e.Coordination.Count(Conflict)
	return Changed(e.Descriptor, q, key, at)
}

// readsTooOld refuses reads of a moment from which not everything is kept any more: a tombstone may
// have been collected with all that it hid.
func (e *Evaluation) readsTooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
	threshold := e.Coordination.Threshold()
	if !at.Less(threshold) {
		return nil
	}
	return Refusing(request.Refuse(q, kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
		"partition %s: what was read at %s cannot be validated any more, versions are kept since %s",
		e.ID(), at, threshold), at, threshold)
}

// leaderChanged says that what was read under volatile locks may never have been there, and counts
// it.
func (e *Evaluation) leaderChanged(q *kvpb.Request, reads *kvpb.ReadSet) *kvpb.Response {
	e.Coordination.Count(Conflict)
	return LeaderChanged(e.Descriptor, q, reads)
}
