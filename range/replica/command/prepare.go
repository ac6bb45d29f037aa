package command

import (
	"bytes"
	"slices"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// Prepare acquires a transaction's locks, all of them or none; or commits it in one phase.
var Prepare = register((*kvpb.Request_Prepare)(nil), Command{
	Name:          "prepare",
	Dispatch:      InQueue,
	Transactional: true,
	Body:          func(q *kvpb.Request) bool { return q.GetPrepare() != nil },
	Permissions:   prepareNeeds,
	Footprint:     prepareFootprint,
	Named: func(q *kvpb.Request) int64 {
		c := q.GetPrepare()
		return max(wall(c.GetAtLeast()), wall(c.GetOnePhase().GetReads().GetAt()))
	},
	Foreground: func(q *kvpb.Request) bool { return !q.GetPrepare().GetLowPriority() },
	// Spans of reads are validated by looking through the engine.
	Alone: func(q *kvpb.Request) bool {
		return len(q.GetPrepare().GetOnePhase().GetReads().GetSpans()) > 0
	},
	Hurried: func(q *kvpb.Request) bool {
		c := q.GetPrepare()
		return c.GetVolatile() || c.GetOnePhase().GetReads().GetLeadership() != nil
	},
	MayDoNothing: func(q *kvpb.Request) bool { return q.GetPrepare().GetOnePhase() != nil },
	CheckWrite:   checkPrepare,
	Evaluate:     evaluatePrepare,
})

// evaluatePrepare acquires a transaction's locks, all of them or none.
//
// A retry finds the locks of the first attempt by their request id. (If the transaction is over by
// then, and its locks are gone, the retry acquires them again. They are prepared above the commit
// timestamp then, because the versions exist, and are recognised as late by that.)
func evaluatePrepare(e *Evaluation, q *kvpb.Request) error {
	c, of := q.GetPrepare(), e.Transaction.Info
	atLeast := wire.FromTimestamp(c.GetAtLeast())
	switch {
	case e.refusedStart(q, of), e.refusedTimes(q, atLeast, of.Started), e.refusedAnchor(q, &of):
		return nil
	case c.GetOnePhase() != nil:
		return evaluateOnePhase(e, q)
	}
	if refusal := e.expired(q, &of); refusal != nil {
		e.Refuse(refusal)
		return nil
	}
	if done, err := e.refusedAborted(q); done || err != nil {
		return err
	}
	p := &preparation{e: e, q: q, c: c, of: of,
		at: hlc.Max(e.judgedAt(), atLeast)}
	if len(c.GetHoldSpans()) > 0 {
		p.holdSpans()
		return nil
	}
	if !p.readsGood() || !p.free() {
		return nil
	}
	return p.acquire()
}

// refusedAnchor refuses a request of a transaction if another transaction with the same id, but
// another anchor, has locks here: clients tell the owner of a lock by its id. (Only a merge can
// bring two such together.)
func (e *Evaluation) refusedAnchor(q *kvpb.Request, of *txn.Info) (refused bool) {
	e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
		locks.EachNamed(of.ID, func(x *concurrency.Transaction) {
			refused = refused || !x.SameAnchor(of)
		})
	})
	if refused {
		e.Refuse(request.Invalid(
			"partition %s: transaction %s has locks here, and names another anchor; this "+
				"request did not run; begin a new transaction", e.ID(), of.ID).Response(q))
	}
	return refused
}

// preparation is the evaluation of one request that acquires locks.
type preparation struct {
	e  *Evaluation
	q  *kvpb.Request
	c  *kvpb.PrepareRequest
	of txn.Info
	// at is the lowest possible prepared timestamp found so far.
	at hlc.Timestamp
	// kept holds keys whose lock an earlier evaluation of this request, or a later request of the
	// transaction, has acquired. In the latter case this request is late. Kept locks are not
	// changed.
	kept map[string]struct{}
	// expires is set if a key that was compared may expire before the commit.
	expires bool
}

// Acquisition describes the locks that a Prepare acquires.
type Acquisition struct {
	Mutations []*kvpb.Mutation
	// Volatile locks are in the leader's memory only.
	Volatile bool
	// At is the lowest possible prepared timestamp.
	At hlc.Timestamp
	// Kept are keys whose lock stays as it is.
	Kept map[string]struct{}
}

// acquire decides which locks are acquired, and at which timestamp at least, unless an earlier
// attempt has done so or something that was read has changed.
func (p *preparation) acquire() error {
	e, q, c := p.e, p.q, p.c
	if c.GetCommitWait() || e.CommitWait && slices.ContainsFunc(c.GetMutations(), writesVersion) {
		p.at = hlc.Max(p.at, e.Coordination.WaitFloor())
	}
	duplicate := p.duplicate()
	var values []*kvpb.GetResponse
	if c.GetReturnValues() {
		var problem *request.Problem
		var err error
		if values, p.at, problem, err = e.preparedValues(c.GetMutations(), p.at); err != nil {
			return err
		}
		if problem != nil {
			e.Refuse(problem.Response(q))
			return nil
		}
	}
	if duplicate && !c.GetVolatile() {
		e.Coordination.Count(Retry)
		e.Answer(p.response(p.at, values), 0)
		return nil
	}
	if !c.GetReturnValues() {
		above, changed, expires, err := e.preparedAbove(c, p.kept, p.at)
		if err != nil {
			return err
		}
		if changed != nil {
			e.Answer(e.Conflict(q, changed, wire.FromTimestamp(c.GetReadAt())), 0)
			return nil
		}
		p.at, p.expires = above, expires
	}
	e.Acquire(&Acquisition{Mutations: c.GetMutations(), Volatile: c.GetVolatile(), At: p.at,
		Kept: p.kept}, func(_ *Result, _ *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
		response := p.response(at, values)
		if c.GetVolatile() {
			response.GetPrepare().Leadership = e.Coordination.Leadership()
		}
		return response
	})
	return nil
}

// free reports that no lock is in the way of the mutations; otherwise the write waits, or is
// answered.
func (p *preparation) free() (free bool) {
	p.e.Coordination.Locks(func(locks *concurrency.Manager, held bool) {
		full := locks.Full(len(p.c.GetMutations()))
		free = !held || locks.Empty() && !full || p.freeAmong(locks, full)
	})
	return free
}

// freeAmong checks the locks. full is set if there is no room for the request's locks.
func (p *preparation) freeAmong(locks *concurrency.Manager, full bool) bool {
	e, id := p.e, p.of.ID
	for _, m := range p.c.GetMutations() {
		l := locks.Get(request.Text(m.Key))
		switch {
		case l == nil || l.Transaction.ID != id && m.Kind == kvpb.Mutation_UNLOCK:
		case l.Transaction.ID != id && readInVain(m, l, id):
			e.Coordination.Count(Conflict)
			e.Answer(LockedSinceRead(e.ID(), p.q, m.Key, l.Transaction.ID), 0)
			return false
		case l.Transaction.ID != id:
			e.Wait(l, l.Key, concurrency.UntilGone)
			return false
		case l.InFlight():
			e.Wait(l, l.Key, concurrency.UntilApplied)
			return false
		}
	}
	if l, key := spanOnWrites(locks, p.c.GetMutations(), id); l != nil {
		e.Wait(l, request.Text(key), concurrency.UntilGone)
		return false
	}
	if full {
		e.Refuse(request.Refuse(p.q, kvpb.ErrorCode_OVERLOADED,
			"partition %s: too many keys are locked by transactions; try again more slowly", e.ID()))
		return false
	}
	return true
}

// duplicate reports whether an earlier attempt has acquired all locks; the prepared timestamp is
// then that of the earlier attempt's answer. No lock of the keys is in flight.
func (p *preparation) duplicate() (all bool) {
	mutations := p.c.GetMutations()
	var prepared hlc.Timestamp
	all = len(mutations) > 0
	p.e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
		for _, m := range mutations {
			l := locks.Get(request.Text(m.Key))
			own := l != nil && l.Transaction.ID == p.of.ID && l.Applied != nil
			// The requests of a transaction are numbered in their order, whichever of its
			// connections a client uses. A lock that an earlier attempt has acquired stays as it
			// is, even if others of that attempt are gone: the transaction may have committed at
			// the timestamp of its answer, and be half resolved.
			late := own && (l.Applied.Request.Sequence > p.q.Sequence ||
				l.Applied.Request == p.e.Request)
			if late {
				if p.kept == nil {
					p.kept = make(map[string]struct{})
				}
				p.kept[request.Text(m.Key)] = struct{}{}
			}
			switch {
			case m.Kind == kvpb.Mutation_UNLOCK:
				all = all && (late || !own)
			case late:
				prepared = hlc.Max(prepared, l.Applied.Prepared)
			default:
				all = false
			}
		}
	})
	if all && !prepared.IsZero() {
		p.at = prepared
	} else {
		p.at = hlc.Max(p.at, prepared)
	}
	return all
}

// response answers a Prepare whose locks are prepared at a timestamp.
func (p *preparation) response(at hlc.Timestamp, values []*kvpb.GetResponse) *kvpb.Response {
	low := p.c.GetLowPriority()
	return &kvpb.Response{Id: p.q.Id, Result: &kvpb.Response_Prepare{
		Prepare: &kvpb.PrepareResponse{Prepared: wire.ToTimestamp(at), Values: values,
			// Compared must not be set for kept locks: a leader of a version that does not compare
			// may have acquired them. Nor with expires, because the commit time is not known yet.
			Compared: p.c.GetReadAt() != nil && len(p.kept) == 0 && !p.expires,
			Busy:     low && p.e.Coordination.Busy(),
			Wanted:   low && p.wanted()}}}
}

// wanted reports whether an older transaction waits here for the transaction's locks.
func (p *preparation) wanted() (wanted bool) {
	p.e.Coordination.Locks(func(locks *concurrency.Manager, _ bool) {
		x := locks.Transaction(&p.of)
		wanted = x != nil && locks.Pushes.Hurried(x)
	})
	return wanted
}

// refusedStart refuses a transaction so old that its outcome may have been forgotten.
func (e *Evaluation) refusedStart(q *kvpb.Request, of txn.Info) bool {
	threshold := e.Coordination.Threshold()
	if !of.Started.Less(threshold) {
		return false
	}
	e.Refuse(Refusing(request.Refuse(q, kvpb.ErrorCode_TRANSACTION_TOO_OLD,
		"partition %s: transaction %s began at %s, before what is kept (since %s)", e.ID(), of.ID,
		of.Started, threshold), of.Started, threshold))
	return true
}

// expired refuses a request that takes locks, or commits in one phase, if its transaction is too
// old; nil if it may go on. A request that waited for a lock is not checked again: its record is.
func (e *Evaluation) expired(q *kvpb.Request, of *txn.Info) *kvpb.Response {
	if e.Waited {
		return nil
	}
	now, maxOffset := e.Coordination.Physical()
	limits := e.Coordination.Limits(keys.KeyspaceID(e.Descriptor.GetKeyspace()))
	refused := limits.TooOld(of, now, maxOffset)
	if refused == nil {
		return nil
	}
	e.Coordination.Count(RefusedStart)
	refused.Message = "partition " + e.ID().String() + ": " + refused.Message
	return &kvpb.Response{Id: q.Id, Error: refused.Proto()}
}

// refusedAborted answers a Prepare that waited when its transaction was aborted here. It returns
// false if there is nothing to answer.
func (e *Evaluation) refusedAborted(q *kvpb.Request) (bool, error) {
	if !e.Aborted {
		return false, nil
	}
	of := e.Transaction.Info
	record, sequence, err := e.recordOf(of)
	if err != nil || !record.Decided() || record.State != kvpb.TransactionState_ABORTED {
		return false, err
	}
	e.Answer(&kvpb.Response{Id: q.Id, Error: AbortedBy(of, record)}, sequence)
	return true, nil
}

// AbortedBy returns the error that a transaction was aborted, with the reason in its record.
func AbortedBy(of txn.Info, record *txn.Record) *kvpb.Error {
	d := txn.DecideEnd(record, &txn.End{Transaction: of, Commit: true}, txn.Present{})
	return d.Refused.Proto()
}

// writesVersion reports whether a mutation is a write, so that its transaction commits a version.
func writesVersion(m *kvpb.Mutation) bool {
	return m.Kind == kvpb.Mutation_PUT || m.Kind == kvpb.Mutation_DELETE
}

// preparedAbove returns the timestamp that the prepared timestamp must be above: ts, or more
// because of versions that exist. Or it returns in changed a key that was written, or has expired,
// since the transaction read it. kept are keys whose lock stays as it is; they are not compared.
// expires is set if a key that was compared may expire before the commit.
func (e *Evaluation) preparedAbove(c *kvpb.PrepareRequest, kept map[string]struct{},
	ts hlc.Timestamp) (above hlc.Timestamp, changed []byte, expires bool, err error) {
	readAt := wire.FromTimestamp(c.GetReadAt())
	for _, m := range c.GetMutations() {
		if m.Kind == kvpb.Mutation_UNLOCK {
			continue
		}
		look := e.PriorOfBlind
		if m.Read {
			look = e.PriorWithoutValue
		}
		prior, err := look(m.Key)
		if err != nil {
			return ts, nil, false, err
		}
		if _, late := kept[request.Text(m.Key)]; m.Read && !late && prior.Found {
			if readAt.Less(prior.Timestamp) || prior.ExpiredAt(ts) && !prior.ExpiredAt(readAt) {
				return ts, m.Key, false, nil
			}
			expires = expires || prior.Expires != 0 && !prior.ExpiredAt(readAt)
		}
		ts = hlc.Max(ts, prior.Timestamp.Next())
	}
	return ts, nil, expires, nil
}

// preparedValues reads the present values of keys, and returns the timestamp that the prepared
// timestamp must be above. If the values exceed what an answer may hold, it returns a problem, and
// nothing else.
func (e *Evaluation) preparedValues(mutations []*kvpb.Mutation, ts hlc.Timestamp) (
	values []*kvpb.GetResponse, above hlc.Timestamp, problem *request.Problem, err error) {
	size := 0
	for i, m := range mutations {
		prior, err := e.Prior(m.Key)
		if err != nil {
			return nil, ts, nil, err
		}
		live := e.Live(m.Key, &prior)
		if live {
			size += len(prior.Value)
		}
		if size > request.MaxBatchBytes {
			return nil, ts,
				request.Invalid("a prepare returns values of at most %d bytes, the first %d "+
					"of its %d keys have more; lock fewer keys at a time",
					request.MaxBatchBytes, i+1, len(mutations)), nil
		}
		e.HoldSeen(&prior)
		value := &kvpb.GetResponse{}
		if live {
			value.Found, value.Value, value.Version = true, bytes.Clone(prior.Value),
				wire.ToTimestamp(prior.Timestamp)
			value.Expires = uint64(prior.Expires)
		}
		values = append(values, value)
		ts = hlc.Max(ts, prior.Timestamp.Next())
	}
	return values, ts, nil, nil
}
