package command

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// A transaction within one partition commits in one entry. The leader, which decides the order of
// the partition's writes, validates the reads as of now, and the writes become versions without
// having been locks.
//
// INVARIANT: the versions become pending writes, and the reads enter the timestamp cache, under one
// hold of the replica's lock, both at the commit timestamp. Every later write is above, in the
// order of the log and by its timestamp.
//
// The versions carry the request's id, so a retry is recognised as that of a batch is: by its first
// key (replayed.go).
//
// A lock that the transaction has taken early is released in the same entry. An older transaction
// may have taken it away meanwhile: then a record here says so, because a transaction's first lock
// is its anchor. If there is a record, the commit is written into it.

// OnePhase describes a one-phase commit besides its versions.
type OnePhase struct {
	Of    txn.Info
	Reads *kvpb.ReadSet
	// Floor is the lowest possible commit timestamp.
	Floor hlc.Timestamp
	// Held lists the transaction's own locks, which end with the commit.
	Held []*concurrency.Lock
	// Stored lists the keys of those locks that are in the engine. The locks themselves must not be
	// read without the replica's lock: they change when the epoch ends.
	Stored []string
	// Unheld is set if the commit is to end a lock that the transaction does not have. The request
	// for that lock may still wait.
	Unheld bool
	// Wait is set for commit wait.
	Wait bool
	// Record is the transaction's; nil if it has none.
	Record *txn.Record
}

// evaluateOnePhase commits a transaction. What is validated here stays valid until the versions are
// pending, because writes are evaluated one after the other.
func evaluateOnePhase(e *Evaluation, q *kvpb.Request) error {
	c, of := q.GetPrepare(), e.Transaction.Info
	reads := c.GetOnePhase().GetReads()
	at := wire.FromTimestamp(reads.GetAt())
	if e.refusedTimes(q, at, hlc.Timestamp{}) {
		return nil
	}
	e.CommitWait = e.CommitWait || c.GetOnePhase().GetCommitWait()
	if own, err := e.onePhaseDuplicate(c); err != nil {
		return err
	} else if own.Found {
		e.Duplicate(onePhaseResponse(q.Id, own.Timestamp), own.Sequence)
		return nil
	}
	o := &OnePhase{Of: of, Reads: reads, Wait: e.CommitWait,
		Floor: hlc.Max(wire.FromTimestamp(c.GetAtLeast()), at.Next())}
	// The record comes before the locks: an aborted transaction must not wait, since it would wait
	// for the older transaction that took its lock away.
	record, sequence, err := e.recordOf(of)
	if err != nil {
		return err
	}
	switch {
	case record == nil:
	case record.State == kvpb.TransactionState_ABORTED:
		e.Answer(&kvpb.Response{Id: q.Id, Error: AbortedBy(of, record)}, sequence)
		return nil
	case record.State == kvpb.TransactionState_COMMITTED:
		e.HoldFor(e.CommitWait || record.CommitWait, record.Timestamp)
		e.Answer(onePhaseResponse(q.Id, record.Timestamp), sequence)
		return nil
	default:
		o.Record, o.Floor = record, hlc.Max(o.Floor, record.Timestamp.Next())
	}
	if l := reads.GetLeadership(); l != nil && !e.Coordination.IsLeadership(l) {
		// As with any conflict, a leader whose answer ends all attempts of the request proves that
		// it leads.
		e.Answer(e.leaderChanged(q, reads), 0)
		return nil
	}
	if refusal := e.expired(q, &of); refusal != nil {
		// This comes after it is certain that no attempt of the request has committed: a client
		// that is told of an abort takes it for final.
		e.NothingDone(refusal, 0)
		return nil
	}
	if e.Waited {
		// The transaction is about to wait for another lock, and what it has read may have been
		// written meanwhile.
		if good, err := e.readsStand(q, reads, at); !good || err != nil {
			return err
		}
	}
	if !e.onePhaseFree(q, o) {
		return nil
	}
	if good, err := e.readsStand(q, reads, at); !good || err != nil {
		return err
	}
	if err := e.onePhaseOps(c); err != nil {
		return err
	}
	e.OnePhase = o
	e.Write(func(_ *Result, q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
		return onePhaseResponse(q.Id, at)
	})
	return nil
}

// readsStand reports whether the reads are still valid; otherwise it has answered.
func (e *Evaluation) readsStand(q *kvpb.Request, reads *kvpb.ReadSet,
	at hlc.Timestamp) (bool, error) {
	refusal, err := e.validateReads(q, reads, at)
	if refusal != nil {
		// If the conflicting pending write is never applied, there was no conflict, and the
		// transaction has made another attempt for nothing. But the answer says that no attempt of
		// this request has an effect or had one: no attempt that waits may take effect, and no
		// other replica may lead and have committed one that is not seen here.
		e.NothingDone(refusal, 0)
	}
	return refusal == nil, err
}

// onePhaseFree reports that no lock is in the way; otherwise the write waits, or is refused. Keys
// that were read must not be locked either: the other transaction might still commit below.
func (e *Evaluation) onePhaseFree(q *kvpb.Request, o *OnePhase) (free bool) {
	e.Coordination.Locks(func(locks *concurrency.Manager, held bool) {
		free = !held || locks.Empty() || e.onePhaseFreeAmong(locks, q, o)
	})
	return free
}

func (e *Evaluation) onePhaseFreeAmong(locks *concurrency.Manager, q *kvpb.Request,
	o *OnePhase) bool {
	mutations, id := q.GetPrepare().GetMutations(), o.Of.ID
	for _, m := range mutations {
		l := locks.Get(request.Text(m.Key))
		if m.Kind == kvpb.Mutation_UNLOCK && (l == nil || l.Transaction.ID != id) {
			o.Unheld = true
			continue
		}
		switch {
		case l == nil:
		case l.Transaction.ID != id:
			// This also applies if the key was read: if the other transaction is aborted, this one
			// commits.
			e.Wait(l, l.Key, concurrency.UntilGone)
			return false
		case l.InFlight():
			e.Wait(l, l.Key, concurrency.UntilApplied)
			return false
		case l.Applied.Writes():
			e.Refuse(request.Invalid(
				"key %s: transaction %s has prepared it already, so it has two phases",
				keys.Pretty(m.Key), id).Response(q))
			return false
		default:
			o.Held = append(o.Held, l)
			if !l.Applied.Volatile {
				o.Stored = append(o.Stored, l.Key)
			}
		}
	}
	if l, key := spanOnWrites(locks, mutations, id); l != nil {
		e.Wait(l, request.Text(key), concurrency.UntilGone)
		return false
	}
	if x := locks.Transaction(&o.Of); x != nil {
		x.EachSpan(func(l *concurrency.Lock) { o.Held = append(o.Held, l) }) // they end with it
		if x.Locks() != len(o.Held) {
			e.Refuse(request.Invalid(
				"transaction %s has locks in partition %s that the request does not mention",
				id, e.ID()).Response(q))
			return false
		}
	}
	if l := o.lockOnReads(locks); l != nil {
		e.Wait(l, l.Key, concurrency.UntilGone)
		return false
	}
	return true
}

// lockOnReads returns another transaction's lock on something that was read, if that lock may
// become a write.
func (o *OnePhase) lockOnReads(locks *concurrency.Manager) (found *concurrency.Lock) {
	inTheWay := func(l *concurrency.Lock) bool {
		return l != nil && l.Transaction.ID != o.Of.ID && l.Blocks(hlc.MaxTimestamp)
	}
	for _, key := range o.Reads.GetKeys() {
		if l := locks.Get(request.Text(key)); inTheWay(l) {
			return l
		}
	}
	for _, span := range o.Reads.GetSpans() {
		locks.Each(request.Text(span.GetStart()), request.Text(span.GetEnd()),
			func(l *concurrency.Lock) bool {
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

// onePhaseDuplicate looks for the version that an earlier attempt of a one-phase commit wrote. All
// its versions carry the request's id, so the first key that is written decides, as with a batch.
func (e *Evaluation) onePhaseDuplicate(c *kvpb.PrepareRequest) (Replayed, error) {
	for _, m := range c.GetMutations() {
		if !writesVersion(m) {
			continue
		}
		p, err := e.PriorOfBlind(m.Key)
		if err != nil {
			return Replayed{}, err
		}
		own, err := e.Replayed(m.Key, &p)
		if err != nil || !own.Found {
			return Replayed{}, err
		}
		e.HoldFor(e.CommitWait, own.Timestamp)
		return own, nil
	}
	return Replayed{}, nil
}

// onePhaseOps adds the versions that a one-phase commit writes.
func (e *Evaluation) onePhaseOps(c *kvpb.PrepareRequest) error {
	for _, m := range c.GetMutations() {
		if !writesVersion(m) {
			continue
		}
		p, err := e.PriorOfBlind(m.Key)
		if err != nil {
			return err
		}
		op := WriteOp{Key: m.Key, Value: m.Value, Tombstone: m.Kind == kvpb.Mutation_DELETE,
			WasLive: p.HasValue(), Prior: p.Timestamp}
		if !op.Tombstone {
			op.Lifetime = e.LifetimeOf(m.Ttl)
		}
		e.Ops = append(e.Ops, op)
	}
	return nil
}

// validateReads returns a refusal if the reads are not valid any more, or nil. Spans are checked in
// the applied state alone: with spans, no write is pending (Command.Alone).
func (e *Evaluation) validateReads(q *kvpb.Request, reads *kvpb.ReadSet,
	at hlc.Timestamp) (*kvpb.Response, error) {
	if len(reads.GetKeys())+len(reads.GetSpans()) == 0 {
		return nil, nil
	}
	if refusal := e.readsTooOld(q, at); refusal != nil {
		return refusal, nil
	}
	for _, key := range reads.GetKeys() {
		p, err := e.Prior(key)
		if err != nil {
			return nil, err
		}
		if p.Found && (at.Less(p.Timestamp) || e.expiresSince(&p, at)) {
			return e.Conflict(q, key, at), nil
		}
	}
	for _, span := range reads.GetSpans() {
		key, expires, err := changedInSpan(e.State, e.Vacant, request.InternalSpan(e.Descriptor,
			span.GetStart(), span.GetEnd()), at,
			mvcc.Limits{Versions: hlc.MaxTimestamp, Expiries: e.judgedAt()})
		if err != nil {
			return nil, err
		}
		e.rests(expires)
		if key != nil {
			return e.Conflict(q, keys.UserKey(e.Descriptor, key), at), nil
		}
	}
	return nil, nil
}

// expiresSince reports whether a key's value that was read at a timestamp expires by the time of
// the commit.
func (e *Evaluation) expiresSince(p *Prior, at hlc.Timestamp) bool {
	switch {
	case !p.HasValue() || p.Expires == 0 || p.ExpiredAt(at):
		return false
	case p.ExpiredAt(e.judgedAt()):
		return true
	}
	e.rests(p.Expires)
	return false
}

// onePhaseResponse answers a one-phase commit.
func onePhaseResponse(id uint64, ts hlc.Timestamp) *kvpb.Response {
	return &kvpb.Response{Id: id,
		Result: &kvpb.Response_Prepare{Prepare: &kvpb.PrepareResponse{Prepared: wire.ToTimestamp(ts)}}}
}
