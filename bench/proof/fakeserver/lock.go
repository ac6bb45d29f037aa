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

// abandonedAfter is how long a transaction may be silent, if LockWaits is set.
const abandonedAfter = 3 * time.Second

// Resolve removes a lock. If its transaction committed, Resolve makes a version of the lock.
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

// Settled says whether a read or a waiter may pass the lock of another transaction. Settled
// resolves the lock of a decided transaction. A read pushes a pending transaction above its
// timestamp. With LockWaits, Settled aborts a pending transaction that is silent, or younger than
// the waiter.
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

// older says whether one transaction is older than another.
func older(a, b *kvpb.Transaction) bool {
	return a != nil && len(a.Anchor) > 0 &&
		cmp.Or(wire.FromTimestamp(a.Begun).Compare(wire.FromTimestamp(b.Begun)),
			bytes.Compare(a.Id, b.Id)) < 0
}

// pushLocks pushes the transactions that have locks in a span, so that they commit above a read. It
// does not push the reader's own transaction.
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

// inTheWay looks for locks of other transactions on keys that a transaction has read, if the lock
// may become a version at or below to; if to is zero, any version. inTheWay pushes the lock above
// to, makes the caller wait, or refuses the request.
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

// changed refuses a request if another transaction has written in (from, to] to a key that was
// read.
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

// conflict refuses a request over a key. other is the transaction that has the lock; nil for a
// version, because servers do not know which transaction wrote a version.
func conflict(key string, other []byte) *kvpb.Response {
	refused := Refusal(kvpb.ErrorCode_TRANSACTION_CONFLICT, "a conflict over "+key)
	refused.Error.Conflict = &kvpb.Conflict{Key: []byte(key), Transaction: other}
	return refused
}
