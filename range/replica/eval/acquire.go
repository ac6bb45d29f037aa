package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// acquire chooses the timestamp of locks, acquires them, and appends them to the batch. It returns
// false if the epoch is over.
func (e *evaluation) acquire(w *write) (prepared hlc.Timestamp, ok bool, err error) {
	r, a, of := e.r, e.Acquisition, w.transaction()
	prepared = a.At
	silentSince := e.silentSince(w)
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(e.epoch) {
		r.Mu.Unlock()
		e.over = true
		return prepared, false, nil
	}
	if prepared = e.preparedLocked(a); e.tooLate(prepared) {
		r.Mu.Unlock()
		return prepared, false, nil
	}
	removed := make([]bool, len(a.Mutations))
	for i, m := range a.Mutations {
		if _, kept := a.Kept[machine.Text(m.Key)]; kept {
			continue
		}
		if m.Kind == kvpb.Mutation_UNLOCK {
			switch l := r.Mu.Locks.Get(machine.Text(m.Key)); {
			case l == nil || l.Transaction.ID != of.ID:
			case l.Applied.Volatile:
				e.releaseLocked(l)
			default:
				r.Mu.Locks.MarkReleased(l, e.proposal.Sequence)
				removed[i] = true
			}
			continue
		}
		r.Mu.Locks.Acquire(string(m.Key), of, concurrency.State{Kind: m.Kind, Prepared: prepared,
			Request: e.Request, Acquired: silentSince, Size: len(m.Value)}, e.proposal.Sequence)
	}
	r.Mu.Unlock()
	e.transactional()
	e.highest = hlc.Max(e.highest, prepared)
	for i, m := range a.Mutations {
		if _, kept := a.Kept[machine.Text(m.Key)]; kept {
			continue
		}
		key := txn.LockKey(e.InternalKey(m.Key))
		switch {
		case m.Kind != kvpb.Mutation_UNLOCK:
			l := txn.Lock{Transaction: of, Kind: m.Kind, Prepared: prepared, Request: e.Request,
				Acquired: silentSince, Lifetime: e.LifetimeOf(m.Ttl), Value: m.Value}
			err = e.batch.Set(key, l.Append(nil), nil)
		case removed[i]:
			err = e.batch.Delete(key, nil)
		}
		if err != nil {
			return prepared, true, err
		}
	}
	return prepared, true, nil
}

// acquireVolatile acquires volatile locks, and answers with the values of the locked keys, which
// count as read.
func (e *evaluation) acquireVolatile(w *write) error {
	r, a := e.r, e.Acquisition
	silentSince := e.silentSince(w)
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(e.epoch) {
		r.Mu.Unlock()
		e.over = true
		return e.wrote(w, false, nil, nil)
	}
	prepared := e.preparedLocked(a)
	if e.tooLate(prepared) {
		r.Mu.Unlock()
		return nil
	}
	for _, m := range a.Mutations {
		// It was read at that timestamp, whatever becomes of the lock.
		r.Mu.Cache.Record(m.Key, prepared)
		if l := r.Mu.Locks.Get(machine.Text(m.Key)); l != nil && !l.Applied.Volatile {
			continue // the transaction has a better lock
		}
		r.Mu.Locks.AcquireVolatile(string(m.Key), w.transaction(), concurrency.State{Kind: m.Kind,
			Prepared: prepared, Request: e.Request, Acquired: silentSince})
	}
	r.Mu.Unlock()
	e.answerRead(w, e.Respond(&e.Result, w.pending.Request, prepared), 0)
	return nil
}

// preparedLocked returns the timestamp at which locks are prepared: above all reads of their keys.
func (e *evaluation) preparedLocked(a *command.Acquisition) hlc.Timestamp {
	r, at := e.r, a.At
	if floor := r.FloorLocked(); at.LessEq(floor) {
		at = floor.Next()
	}
	for _, m := range a.Mutations {
		at = r.Mu.Cache.Above(m.Key, at)
	}
	return at
}
