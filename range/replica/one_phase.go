package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction that lies in one partition commits in one entry: its reads are validated as of now,
// by the leader, which decides the order of the partition's writes, and its writes become versions
// without having been locks.
//
// INVARIANT: the versions become pending writes, and the reads enter the timestamp cache, under one
// hold of the lock, both at the commit timestamp. What comes later is above, in the order of the
// log and by its timestamp.
//
// The versions carry the request's id, so a retry is recognised as that of a batch is: by its first
// key (command/duplicate.go).
//
// A lock that the transaction has taken early goes in the same entry. It may have been taken away
// meanwhile, by an older transaction: then there is a record here that says so, for a transaction's
// first lock is its anchor. If there is a record, it is told of the commit.

// onePhase is what a one-phase commit adds to a write.
type onePhase struct {
	of    txn.Info
	reads *kvpb.ReadSet
	// floor is what the commit timestamp must not be below.
	floor hlc.Timestamp
	// held are the transaction's own locks that go.
	held []*lock
	// stored are the keys of those that are in the engine. The locks themselves are not to be
	// looked at without the lock: they change when the epoch ends.
	stored []string
	// unheld: it is to end a lock that the transaction does not have. The request for that may wait
	// yet.
	unheld bool
	// wait: with commit wait.
	wait bool
}

// registerLocked is called when the timestamp is chosen.
func (o *onePhase) registerLocked(e *evaluation, ts hlc.Timestamp) {
	r := e.r
	for _, key := range o.reads.GetKeys() {
		r.mu.cache.Record(key, ts)
	}
	for _, span := range o.reads.GetSpans() {
		r.mu.cache.RecordSpan(keys.Span{Start: span.GetStart(), End: span.GetEnd()}, ts)
	}
	for _, l := range o.held {
		switch {
		case !l.Applied.Volatile:
			r.mu.locks.MarkReleased(l, e.proposal.sequence)
		case o.wait:
			// What no client may hear of before its time is not handed on before it is applied either.
			e.proposal.lets = append(e.proposal.lets, l)
		default:
			e.releaseLocked(l)
		}
	}
}

func (e *evaluation) onePhase(w *write, c *kvpb.PrepareRequest) error {
	r, q, of := e.r, w.pending.Request, w.transaction()
	reads := c.GetOnePhase().GetReads()
	at := rpc.FromTimestamp(reads.GetAt())
	if !r.checkAhead(at, e.Clock) {
		e.refuse(w, r.fromTheFuture(q, at))
		return nil
	}
	e.CommitWait = e.CommitWait || c.GetOnePhase().GetCommitWait()
	if own, err := e.OnePhaseDuplicate(c); err != nil {
		return err
	} else if own.Found {
		e.answerDuplicate(w, command.OnePhaseResponse(q.Id, own.Timestamp), own.Sequence)
		return nil
	}
	o := &onePhase{of: of, reads: reads, wait: e.CommitWait,
		floor: hlc.Max(rpc.FromTimestamp(c.GetAtLeast()), at.Next())}
	// Before the locks: what was aborted has nothing to wait for, and would wait for the older
	// transaction that took its lock away.
	record, sequence, err := e.RecordOf(of)
	if err != nil {
		return err
	}
	switch {
	case record == nil:
	case record.State == kvpb.TransactionState_ABORTED:
		e.answerRead(w, &kvpb.Response{Id: q.Id, Error: r.abortedError(of, record)}, sequence)
		return nil
	case record.State == kvpb.TransactionState_COMMITTED:
		e.HoldFor(e.CommitWait || record.Waits, record.Timestamp)
		e.answerRead(w, command.OnePhaseResponse(q.Id, record.Timestamp), sequence)
		return nil
	default:
		o.floor = hlc.Max(o.floor, record.Timestamp.Next())
	}
	if l := reads.GetLeadership(); l != nil && !e.isLeadership(l) {
		// As with any conflict: a leader that ends all attempts of the request by it proves that it
		// leads.
		e.answerRead(w, r.leadershipError(q, reads), 0)
		return nil
	}
	if refusal := e.expired(w, &of); refusal != nil {
		// After it was made sure that no attempt of the request has committed: a client that is
		// told that it was aborted takes it for final.
		e.answerNothingDone(w, refusal, 0)
		return nil
	}
	if w.conflict() != nil {
		// It has waited, and is about to wait for the next lock. What it has read may have been
		// written meanwhile.
		if good, err := e.readsStand(w, reads, at); !good || err != nil {
			return err
		}
	}
	if !e.onePhaseFree(w, c, o) {
		return nil
	}
	if good, err := e.readsStand(w, reads, at); !good || err != nil {
		return err
	}
	if err := e.OnePhaseOps(c); err != nil {
		return err
	}
	w.x.one = o
	ts, ok, err := e.write(w, e.Ops...)
	if err == nil && ok {
		if o.unheld {
			e.cancelCommitted(of.ID)
		}
		err = e.endLocks(o, record, ts)
		r.node.Metrics.onePhase.Inc()
	}
	return e.wrote(w, ok, err, func() *kvpb.Response { return command.OnePhaseResponse(q.Id, ts) })
}

// endLocks ends what a transaction has left of having had locks.
func (e *evaluation) endLocks(o *onePhase, record *txn.Record, ts hlc.Timestamp) error {
	if len(o.stored) > 0 {
		e.transactional()
	}
	for _, key := range o.stored {
		if err := e.batch.Delete(txn.LockKey(e.InternalKey([]byte(key))), nil); err != nil {
			return err
		}
	}
	if record == nil {
		return nil
	}
	committed := *record
	committed.State, committed.Timestamp = kvpb.TransactionState_COMMITTED, ts
	committed.Waits, committed.Idle = o.wait, 0
	committed.Finished = hlc.Max(e.r.node.Clock.Now(), committed.Started.Next())
	ok, err := e.setRecord(o.of, &committed)
	e.over = e.over || !ok
	return err
}

// onePhaseFree says that no lock is in the way; otherwise the write waits, or is refused. What it
// reads may not be locked either: such a transaction might yet commit below.
func (e *evaluation) onePhaseFree(w *write, c *kvpb.PrepareRequest, o *onePhase) bool {
	r, of := e.r, o.of
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.is(e.epoch) || r.mu.locks.Empty() {
		return true
	}
	for _, m := range c.GetMutations() {
		l := r.mu.locks.Get(text(m.Key))
		if m.Kind == kvpb.Mutation_UNLOCK && (l == nil || l.Transaction.ID != of.ID) {
			o.unheld = true
			continue
		}
		switch {
		case l == nil:
		case l.Transaction.ID != of.ID:
			// Also if the key was read: should the other one be aborted, this one commits.
			e.waitLocked(w, l, l.Key, concurrency.UntilGone)
			return false
		case l.InFlight():
			e.waitLocked(w, l, l.Key, concurrency.UntilApplied)
			return false
		case l.Applied.Writes():
			e.refuse(w, command.Invalid("key %s: transaction %s has prepared it already, so it has two "+
				"phases", keys.Pretty(m.Key), of.ID).Response(w.pending.Request))
			return false
		default:
			o.held = append(o.held, l)
			if !l.Applied.Volatile {
				o.stored = append(o.stored, l.Key)
			}
		}
	}
	if l, key := r.spanOnWritesLocked(c.GetMutations(), of.ID); l != nil {
		e.waitLocked(w, l, text(key), concurrency.UntilGone)
		return false
	}
	if x := r.mu.locks.Transaction(of.ID); x != nil {
		x.EachSpan(func(l *lock) { o.held = append(o.held, l) }) // they end with it
		if x.Locks() != len(o.held) {
			e.refuse(w, command.Invalid("transaction %s has locks in partition %s that the request does "+
				"not mention", of.ID, r.id).Response(w.pending.Request))
			return false
		}
	}
	if l := r.lockOnReadsLocked(o); l != nil {
		e.waitLocked(w, l, l.Key, concurrency.UntilGone)
		return false
	}
	return true
}

// lockOnReadsLocked is another transaction's lock of something that was read, and that may be
// written.
func (r *Replica) lockOnReadsLocked(o *onePhase) (found *lock) {
	inTheWay := func(l *lock) bool {
		return l != nil && l.Transaction.ID != o.of.ID &&
			l.Blocks(hlc.MaxTimestamp)
	}
	for _, key := range o.reads.GetKeys() {
		if l := r.mu.locks.Get(text(key)); inTheWay(l) {
			return l
		}
	}
	for _, span := range o.reads.GetSpans() {
		r.mu.locks.Each(text(span.GetStart()), text(span.GetEnd()), func(l *lock) bool {
			if inTheWay(l) {
				found = l
			}
			return found == nil
		})
		if found != nil {
			return found
		}
	}
	return nil
}

// readsStand says whether what was read is good still; otherwise it has answered.
func (e *evaluation) readsStand(w *write, reads *kvpb.ReadSet, at hlc.Timestamp) (bool, error) {
	refusal, err := e.ValidateReads(w.pending.Request, reads, at)
	if refusal != nil {
		// A conflict that turns out to be none, because what is pending is never applied, costs
		// another attempt of the transaction, and nothing else. But it says that no attempt of this
		// request takes effect, nor has: none that waits may, and no other replica may lead, and have
		// committed one that is not seen here.
		e.answerNothingDone(w, refusal, 0)
	}
	return refusal == nil, err
}

// abortedError says that a transaction was aborted.
func (r *Replica) abortedError(of txn.Info, record *txn.Record) *kvpb.Error {
	d := txn.DecideEnd(record, &txn.End{Transaction: of, Commit: true}, txn.Present{})
	return d.Refused.Proto()
}
