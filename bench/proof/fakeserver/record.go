package fakeserver

import (
	"bytes"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Record is the record of a transaction.
type Record struct {
	// Status is the status of the transaction. If it is PENDING, its timestamp is the one above
	// which the transaction commits.
	Status *kvpb.TransactionStatus
	heard  time.Time
}

// Record returns the record of a transaction. It makes a new one if there is none.
func (s *Store) Record(id []byte) *Record {
	r := s.records[string(id)]
	if r == nil {
		r = &Record{Status: &kvpb.TransactionStatus{}, heard: time.Now()}
		s.records[string(id)] = r
	}
	return r
}

// Push makes a pending transaction commit above a timestamp.
func (r *Record) Push(at hlc.Timestamp) {
	r.Status.Timestamp = wire.ToTimestamp(hlc.Max(wire.FromTimestamp(r.Status.Timestamp), at))
}

// abort aborts a transaction.
func (r *Record) abort(why kvpb.AbortReason) {
	r.Status.State, r.Status.Reason = kvpb.TransactionState_ABORTED, why
}

// Abort aborts a transaction, as an older transaction does, and removes all its locks.
func (s *Store) Abort(id []byte) {
	s.Record(id).abort(kvpb.AbortReason_WOUNDED)
	s.resolveEverywhere(id)
}

// resolveEverywhere resolves all locks of a decided transaction.
func (s *Store) resolveEverywhere(id []byte) {
	for _, p := range s.Partitions {
		for key, l := range p.Data.Locks {
			if bytes.Equal(l.Transaction.Id, id) && p.Contains(key) {
				p.Resolve(key, s.Record(id).Status)
			}
		}
	}
}

// heartbeat executes a HeartbeatTransaction.
func (s *Store) heartbeat(c *kvpb.HeartbeatTransactionRequest) *kvpb.Response {
	r := s.Record(c.Transaction.Id)
	r.heard = time.Now()
	return &kvpb.Response{Result: &kvpb.Response_HeartbeatTransaction{
		HeartbeatTransaction: &kvpb.HeartbeatTransactionResponse{Status: cloned(r.Status)},
	}}
}

// resolveAll executes a Resolve.
func (s *Store) resolveAll(p *Partition, c *kvpb.ResolveRequest) *kvpb.Response {
	for _, r := range c.Resolutions {
		for key, l := range p.Data.Locks {
			if bytes.Equal(l.Transaction.Id, r.Transaction) && p.Contains(key) {
				p.Resolve(key, r.Status)
			}
		}
	}
	return &kvpb.Response{}
}

// end executes an EndTransaction, which decides a transaction.
func (s *Store) end(clock *Clock, c *kvpb.EndTransactionRequest) *kvpb.Response {
	r := s.Record(c.Transaction.Id)
	at := wire.FromTimestamp(c.CommitTimestamp)
	switch {
	case r.Status.State == kvpb.TransactionState_ABORTED && c.Commit:
		refused := Refusal(kvpb.ErrorCode_TRANSACTION_ABORTED, "it was aborted")
		refused.Error.Conflict = &kvpb.Conflict{Reason: r.Status.Reason}
		return refused
	case r.Status.State != kvpb.TransactionState_PENDING:
	case !c.Commit:
		r.abort(kvpb.AbortReason_ROLLED_BACK)
	case at.LessEq(wire.FromTimestamp(r.Status.Timestamp)):
		refused := Refusal(kvpb.ErrorCode_TRANSACTION_PUSHED, "it was pushed")
		refused.Error.Timestamp = r.Status.Timestamp
		return refused
	default:
		r.Status.State, r.Status.Timestamp = kvpb.TransactionState_COMMITTED, c.CommitTimestamp
		clock.Give(at)
	}
	if !s.LockWaits {
		s.resolveEverywhere(c.Transaction.Id)
	}
	return &kvpb.Response{Result: &kvpb.Response_EndTransaction{
		EndTransaction: &kvpb.EndTransactionResponse{Status: cloned(r.Status)},
	}}
}
