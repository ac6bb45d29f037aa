package fakeserver

import (
	"bytes"
	"cmp"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// abandonedAfter is how long a transaction may be silent, where locks wait.
const abandonedAfter = 3 * time.Second

// Resolve takes a lock away, and makes a version of it if its transaction committed.
func (p *Partition) Resolve(key string, status *kvpb.TransactionStatus) {
	l := p.Data.Locks[key]
	delete(p.Data.Locks, key)
	if status.State == kvpb.TransactionState_COMMITTED {
		p.commit(key, l.Kind, Version{
			At: wire.FromTimestamp(status.Timestamp), Value: l.Value,
			Transaction: string(l.Transaction.Id),
		})
	}
}

func (p *Partition) commit(key string, kind kvpb.Mutation_Kind, v Version) {
	switch kind {
	case kvpb.Mutation_DELETE:
		v.Tombstone, v.Value = true, ""
	case kvpb.Mutation_PUT:
	default:
		return
	}
	p.Write(key, v)
}

// Settled says whether the lock of another transaction is out of the way of a read at a timestamp,
// or of a waiter. A decided transaction's lock is resolved. A pending one is pushed by a read, and
// aborted if it is silent or younger than the waiter, where locks wait.
func (s *Store) Settled(p *Partition, key string, waiter *kvpb.Transaction,
	read hlc.Timestamp) bool {
	l := p.Data.Locks[key]
	r := s.Record(l.Transaction.Id)
	if r.Status.State == kvpb.TransactionState_PENDING {
		heard := r.heard
		if heard.Before(l.acquired) {
			heard = l.acquired
		}
		switch {
		case s.LockWaits && time.Since(heard) > abandonedAfter:
			r.abort(kvpb.AbortReason_ABANDONED)
		case !read.IsZero():
			r.Push(read)
			return true
		case s.LockWaits && older(waiter, l.Transaction):
			r.abort(kvpb.AbortReason_WOUNDED)
		default:
			return false
		}
	}
	p.Resolve(key, r.Status)
	return true
}

// older says that one transaction goes before another.
func older(a, b *kvpb.Transaction) bool {
	return a != nil && len(a.Anchor) > 0 &&
		cmp.Or(wire.FromTimestamp(a.Begun).Compare(wire.FromTimestamp(b.Begun)),
			bytes.Compare(a.Id, b.Id)) < 0
}

// pushLocks makes sure that what is locked in a span commits above a read, unless it is the
// reader's own.
func (s *Store) pushLocks(p *Partition, span keys.Span, at hlc.Timestamp,
	reader *kvpb.ReadContext) {
	for key, l := range p.Data.Locks {
		if l.Kind != kvpb.Mutation_LOCK && l.Prepared.LessEq(at) && !bytes.Equal(l.Transaction.Id,
			reader.GetTransaction()) &&
			span.Contains([]byte(key)) && p.Contains(key) {
			s.Settled(p, key, nil, at)
		}
	}
}

// inTheWay finds a lock of another transaction on what one has read, which may become a version at
// or below to, or any version if to is zero. The lock is pushed above to, waited for, or refused.
func (s *Store) inTheWay(p *Partition, reads *kvpb.ReadSet, to hlc.Timestamp,
	waiter *kvpb.Transaction, id []byte) (refused *kvpb.Response, wait bool) {
	for key, l := range p.Data.Locks {
		switch {
		case bytes.Equal(l.Transaction.Id, id), !p.covers(reads, key):
		case !s.LockWaits:
			if l.Kind != kvpb.Mutation_LOCK && !s.Settled(p, key, nil, hlc.Timestamp{}) {
				return conflict(key, l.Transaction.Id), false
			}
		case l.Prepared.LessEq(to) && !s.Settled(p, key, waiter, to):
			return nil, true
		}
	}
	return nil, false
}

// changed finds a key that was read and has been written in (from, to] by another transaction.
func (p *Partition) changed(reads *kvpb.ReadSet, from, to hlc.Timestamp, id []byte) *kvpb.Response {
	for key, all := range p.Data.Versions {
		for _, v := range all {
			if from.Less(v.At) && v.At.LessEq(to) && v.Transaction != string(id) &&
				p.covers(reads, key) {
				return conflict(key, nil)
			}
		}
	}
	return nil
}

// conflict refuses a request over a key. Servers do not know which transaction wrote a version:
// then other is nil.
func conflict(key string, other []byte) *kvpb.Response {
	refused := Refusal(kvpb.ErrorCode_TRANSACTION_CONFLICT, "a conflict over "+key)
	refused.Error.Conflict = &kvpb.Conflict{Key: []byte(key), Transaction: other}
	return refused
}
