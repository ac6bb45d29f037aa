package replica

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// prepare acquires a transaction's locks, all of them or none.
//
// A retry finds the locks of the first attempt by their request id. (If the transaction is over by
// then, and they are gone, it acquires them again. They are prepared above the commit timestamp
// then, because the versions are there, and so are recognised as late.)
func (e *evaluation) prepare(w *write, c *kvpb.PrepareRequest) error {
	r, of := e.r, w.transaction()
	atLeast := rpc.FromTimestamp(c.GetAtLeast())
	switch {
	case of.Started.Less(*r.threshold.Load()):
		e.refuse(w, r.tooOld(w.pending.Request, of))
		return nil
	case !r.checkAhead(atLeast, e.Clock):
		e.refuse(w, r.fromTheFuture(w.pending.Request, atLeast))
		return nil
	case e.isFuture(of.Started):
		e.refuse(w, r.fromTheFuture(w.pending.Request, of.Started))
		return nil
	case c.GetOnePhase() != nil:
		return e.onePhase(w, c)
	}
	if refusal := e.expired(w, &of); refusal != nil {
		e.refuse(w, refusal)
		return nil
	}
	if done, err := e.refusedAborted(w); done || err != nil {
		return err
	}
	if len(c.GetHoldSpans()) > 0 {
		return e.holdSpans(w, c)
	}
	if !e.readsGood(w, c) || !e.free(w, c.GetMutations()) {
		return nil
	}
	p := preparation{e: e, w: w, of: of, returnValues: c.GetReturnValues(),
		ts: hlc.Max(e.Clock, hlc.Max(atLeast, w.session.Next()))}
	if c.GetCommitWait() ||
		e.CommitWait && slices.ContainsFunc(c.GetMutations(), command.WritesVersion) {
		p.ts = hlc.Max(p.ts, r.node.Clock.WaitFloor())
	}
	duplicate := p.duplicate(c.GetMutations())
	if p.returnValues {
		var problem *command.Problem
		var err error
		if p.values, p.ts, problem, err = e.PreparedValues(c.GetMutations(), p.ts); err != nil {
			return err
		}
		if problem != nil {
			e.refuse(w, problem.Response(w.pending.Request))
			return nil
		}
	}
	if duplicate && !c.GetVolatile() {
		r.node.Metrics.duplicates.Inc()
		e.answerRead(w, p.response(), 0)
		return nil
	}
	if c.GetVolatile() {
		return p.hold(c.GetMutations())
	}
	if !p.returnValues {
		above, changed, err := e.PreparedAbove(c, p.held, p.ts)
		if err != nil {
			return err
		}
		if changed != nil {
			e.answerRead(w, e.Conflict(w.pending.Request, changed, rpc.FromTimestamp(c.GetReadAt())), 0)
			return nil
		}
		p.ts = above
	}
	ok, err := p.acquire(c.GetMutations())
	return e.wrote(w, ok, err, p.response)
}

// free says that no lock is in the way of a transaction's mutations; otherwise the write waits, or
// is answered.
func (e *evaluation) free(w *write, mutations []*kvpb.Mutation) bool {
	free, vain, other := e.lookForLocks(w, mutations)
	if vain != nil {
		e.answerRead(w, e.r.conflictWith(w.pending.Request, vain.Key, other), 0)
	}
	return free
}

// lookForLocks has a write wait for a lock that is in its way, or refuses it, and returns false.
// vain is set instead if it would wait in vain, for what another transaction does.
func (e *evaluation) lookForLocks(w *write, mutations []*kvpb.Mutation) (free bool,
	vain *kvpb.Mutation, other txn.ID) {
	r, of := e.r, w.transaction()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.is(e.epoch) || r.mu.locks.Empty() && len(mutations) <= r.node.MaxLocks {
		return true, nil, other
	}
	for _, m := range mutations {
		l := r.mu.locks.Get(text(m.Key))
		switch {
		case l == nil || l.Transaction.ID != of.ID && m.Kind == kvpb.Mutation_UNLOCK:
		case l.Transaction.ID != of.ID && readInVain(m, l, &of):
			return false, m, l.Transaction.ID
		case l.Transaction.ID != of.ID:
			e.waitLocked(w, l, l.Key, concurrency.UntilGone)
			return false, nil, other
		case l.InFlight():
			e.waitLocked(w, l, l.Key, concurrency.UntilApplied)
			return false, nil, other
		}
	}
	if l, key := r.spanOnWritesLocked(mutations, of.ID); l != nil {
		e.waitLocked(w, l, text(key), concurrency.UntilGone)
		return false, nil, other
	}
	if r.mu.locks.Full(len(mutations)) {
		e.refuse(w, r.overloaded(w.pending.Request, "keys are locked by transactions"))
		return false, nil, other
	}
	return true, nil, other
}

// preparation is how one request acquires its locks.
type preparation struct {
	e            *evaluation
	w            *write
	of           txn.Info
	returnValues bool
	// ts is the prepared timestamp, as far as it is known.
	ts     hlc.Timestamp
	values []*kvpb.GetResponse
	// held are keys whose lock this request has acquired before, or a later one of the transaction:
	// this one is late, and leaves them alone.
	held map[string]struct{}
}

func (p *preparation) request() mvcc.RequestID {
	return mvcc.RequestID{Client: p.w.pending.Client, Sequence: p.w.pending.Request.Sequence}
}

// duplicate says that an earlier attempt has done all of it; then ts is what that was told. No lock
// of the keys is in flight.
func (p *preparation) duplicate(mutations []*kvpb.Mutation) bool {
	r := p.e.r
	var prepared hlc.Timestamp
	r.mu.Lock()
	defer r.mu.Unlock()
	all := len(mutations) > 0
	for _, m := range mutations {
		l := r.mu.locks.Get(text(m.Key))
		own := l != nil && l.Transaction.ID == p.of.ID && l.Applied != nil
		// The requests of a transaction are numbered in their order, whichever of its connections a
		// client sends them by. A lock that an earlier attempt has acquired stays as it is, even if
		// others of that attempt are gone: the transaction may have committed at the timestamp of
		// its answer, and be half resolved.
		late := own && (l.Applied.Request.Sequence > p.w.pending.Request.Sequence ||
			l.Applied.Request == p.request())
		if late {
			if p.held == nil {
				p.held = make(map[string]struct{})
			}
			p.held[text(m.Key)] = struct{}{}
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
	if all && !prepared.IsZero() {
		p.ts = prepared
	} else {
		p.ts = hlc.Max(p.ts, prepared)
	}
	return all
}

// acquire chooses the timestamp, acquires the locks, and appends them to the batch. It returns
// false if the epoch is over.
func (p *preparation) acquire(mutations []*kvpb.Mutation) (bool, error) {
	e, r := p.e, p.e.r
	silentSince := p.silentSince()
	e.transactional()
	r.mu.Lock()
	if !r.mu.leadership.is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return false, nil
	}
	if p.ts.LessEq(r.mu.applied.closed) {
		p.ts = r.mu.applied.closed.Next()
	}
	for _, m := range mutations {
		p.ts = r.mu.cache.Above(m.Key, p.ts)
	}
	removed := make([]bool, len(mutations))
	for i, m := range mutations {
		if _, late := p.held[text(m.Key)]; late {
			continue
		}
		if m.Kind == kvpb.Mutation_UNLOCK {
			switch l := r.mu.locks.Get(text(m.Key)); {
			case l == nil || l.Transaction.ID != p.of.ID:
			case l.Applied.Volatile:
				e.releaseLocked(l)
			default:
				r.mu.locks.MarkReleased(l, e.proposal.sequence)
				removed[i] = true
			}
			continue
		}
		r.mu.locks.Acquire(string(m.Key), p.of, concurrency.State{
			Kind: m.Kind, Prepared: p.ts, Request: p.request(), Acquired: silentSince, Size: len(m.Value)},
			e.proposal.sequence)
	}
	r.mu.Unlock()
	e.highest = hlc.Max(e.highest, p.ts)
	for i, m := range mutations {
		if _, late := p.held[text(m.Key)]; late {
			continue
		}
		if err := p.append(m, silentSince, removed[i]); err != nil {
			return true, err
		}
	}
	return true, nil
}

// silentSince is since when the transaction's client counts as silent if no heartbeat comes. It has
// sent heartbeats while its request waited for other locks, so that time counts too; but only half
// of what makes it silent, for those that are under way.
func (p *preparation) silentSince() int64 {
	now := p.e.r.node.Clock.Physical()
	if p.w.conflict() == nil {
		return now
	}
	waited := max(0, p.e.now.Sub(p.w.pending.Arrived))
	return now - int64(min(waited, txn.Abandoned/2))
}

// append puts one lock into the batch, or takes it away.
func (p *preparation) append(m *kvpb.Mutation, silentSince int64, removed bool) error {
	key := txn.LockKey(p.e.InternalKey(m.Key))
	if m.Kind == kvpb.Mutation_UNLOCK {
		if !removed {
			return nil
		}
		return p.e.batch.Delete(key, nil)
	}
	l := txn.Lock{Transaction: p.of, Kind: m.Kind, Prepared: p.ts, Request: p.request(),
		Acquired: silentSince, Value: m.Value}
	return p.e.batch.Set(key, l.Append(nil), nil)
}

func (p *preparation) response() *kvpb.Response {
	lowPriority := p.w.pending.Request.GetPrepare().GetLowPriority()
	return &kvpb.Response{Id: p.w.pending.Request.Id, Result: &kvpb.Response_Prepare{
		Prepare: &kvpb.PrepareResponse{Prepared: rpc.ToTimestamp(p.ts), Values: p.values,
			// The leader that acquired the held locks may have been of a version that does not compare.
			Compared: p.w.pending.Request.GetPrepare().GetReadAt() != nil && len(p.held) == 0,
			Busy:     lowPriority && p.e.r.node.load.Busy(time.Now()),
			Wanted:   lowPriority && p.wanted()}}}
}

// wanted says whether something waits for the transaction's locks here that should not.
func (p *preparation) wanted() bool {
	r := p.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	x := r.mu.locks.Transaction(p.of.ID)
	return x != nil && r.mu.locks.Hurried(x)
}

// tooOld refuses a transaction whose outcome may have been forgotten.
func (r *Replica) tooOld(q *kvpb.Request, of txn.Info) *kvpb.Response {
	threshold := *r.threshold.Load()
	return command.Refusing(newError(q, kvpb.ErrorCode_TRANSACTION_TOO_OLD,
		"partition %s: transaction %s began at %s, before what is kept (since %s)", r.id, of.ID,
		of.Started, threshold), of.Started, threshold)
}

// fromTheFuture refuses a timestamp that no clock of the cluster can have given.
func (r *Replica) fromTheFuture(q *kvpb.Request, ts hlc.Timestamp) *kvpb.Response {
	return command.FromTheFuture(r.id, q, ts)
}

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
func readInVain(m *kvpb.Mutation, l *lock, of *txn.Info) bool {
	other := l.Transaction
	return m.Read && other.Known.State != kvpb.TransactionState_ABORTED &&
		!of.ID.SameTransaction(other.ID)
}

// conflictWith is the answer to a write that another transaction's lock makes vain.
func (r *Replica) conflictWith(q *kvpb.Request, key []byte, other txn.ID) *kvpb.Response {
	r.node.Metrics.conflicts.Inc()
	response := newError(q, kvpb.ErrorCode_TRANSACTION_CONFLICT,
		"partition %s: key %s was read, and transaction %s has locked it since and is about to write "+
			"it; run the transaction again", r.id, keys.Pretty(key), other)
	response.Error.Conflict = &kvpb.Conflict{Key: key, Transaction: other.Bytes()}
	return response
}

// readsGood says whether what is to be compared by itself, before any key, is good; otherwise it
// has answered.
func (e *evaluation) readsGood(w *write, c *kvpb.PrepareRequest) bool {
	r, q, at := e.r, w.pending.Request, rpc.FromTimestamp(c.GetReadAt())
	if at.IsZero() {
		return true
	}
	if l := c.GetLeadership(); l != nil && !e.isLeadership(l) {
		e.answerRead(w, r.leadershipError(q, firstRead(c)), 0)
		return false
	}
	if refusal := e.ReadsTooOld(q, at); refusal != nil {
		e.refuse(w, refusal)
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
