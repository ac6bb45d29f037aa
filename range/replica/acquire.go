package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// acquire chooses the timestamp of locks, acquires them, and appends them to the batch. It returns
// false if the epoch is over.
func (e *evaluation) acquire(w *write) (prepared hlc.Timestamp, ok bool, err error) {
	r, a, of := e.r, e.Acquisition, w.transaction()
	prepared = a.At
	silentSince := e.silentSince(w)
	r.mu.Lock()
	if !r.mu.leadership.Is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return prepared, false, nil
	}
	if prepared = e.preparedLocked(a); e.tooLate(prepared) {
		r.mu.Unlock()
		return prepared, false, nil
	}
	removed := make([]bool, len(a.Mutations))
	for i, m := range a.Mutations {
		if _, kept := a.Kept[text(m.Key)]; kept {
			continue
		}
		if m.Kind == kvpb.Mutation_UNLOCK {
			switch l := r.mu.locks.Get(text(m.Key)); {
			case l == nil || l.Transaction.ID != of.ID:
			case l.Applied.Volatile:
				e.releaseLocked(l)
			default:
				r.mu.locks.MarkReleased(l, e.proposal.sequence)
				removed[i] = true
			}
			continue
		}
		r.mu.locks.Acquire(string(m.Key), of, concurrency.State{Kind: m.Kind, Prepared: prepared,
			Request: e.Request, Acquired: silentSince, Size: len(m.Value)}, e.proposal.sequence)
	}
	r.mu.Unlock()
	e.transactional()
	e.highest = hlc.Max(e.highest, prepared)
	for i, m := range a.Mutations {
		if _, kept := a.Kept[text(m.Key)]; kept {
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

// acquireVolatile acquires volatile locks, and answers with what is below them, which has been
// read.
func (e *evaluation) acquireVolatile(w *write) error {
	r, a := e.r, e.Acquisition
	silentSince := e.silentSince(w)
	r.mu.Lock()
	if !r.mu.leadership.Is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return e.wrote(w, false, nil, nil)
	}
	prepared := e.preparedLocked(a)
	if e.tooLate(prepared) {
		r.mu.Unlock()
		return nil
	}
	for _, m := range a.Mutations {
		// It was read at that timestamp, whatever becomes of the lock.
		r.mu.cache.Record(m.Key, prepared)
		if l := r.mu.locks.Get(text(m.Key)); l != nil && !l.Applied.Volatile {
			continue // it has a better one
		}
		r.mu.locks.AcquireVolatile(string(m.Key), w.transaction(), concurrency.State{Kind: m.Kind,
			Prepared: prepared, Request: e.Request, Acquired: silentSince})
	}
	r.mu.Unlock()
	e.answerRead(w, e.Respond(&e.Result, w.pending.Request, prepared), 0)
	return nil
}

// preparedLocked is the timestamp at which locks are prepared: above all that was read.
func (e *evaluation) preparedLocked(a *command.Acquisition) hlc.Timestamp {
	r, at := e.r, a.At
	if floor := r.floorLocked(); at.LessEq(floor) {
		at = floor.Next()
	}
	for _, m := range a.Mutations {
		at = r.mu.cache.Above(m.Key, at)
	}
	return at
}

// silentSince is since when a transaction's client counts as silent if no heartbeat comes. It has
// sent heartbeats while its request waited for other locks, so that time counts too; but only half
// of what makes it silent, for those that are under way.
func (e *evaluation) silentSince(w *write) int64 {
	now := e.r.node.Clock.Physical()
	if w.conflict() == nil {
		return now
	}
	waited := max(time.Duration(0), e.now.Sub(w.pending.Arrived))
	return now - int64(min(waited, txn.Abandoned/2))
}
