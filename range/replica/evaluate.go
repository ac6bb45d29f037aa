package replica

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// evaluation turns queued writes into one proposal. There is at most one at work in a replica; it
// belongs to one goroutine.
//
// When as much is in flight as may be, writes wait in the queue and share an entry later. Those
// that take turns with volatile locks would not come together that way, for the next comes only
// when the one before has been evaluated. They are evaluated all the same, and their proposal stays
// open: it takes in more, and is proposed as soon as there is room (Replica.mu.open).
//
// It holds no lock while it reads the engine. That is sound: what is applied meanwhile was pending
// when it looked there, and only it adds pending writes.
type evaluation struct {
	// What the write at hand is evaluated on, and what has come of it.
	command.Evaluation
	// current is the write at hand.
	current *write
	r       *Replica
	writes  []write
	// Taken together with the writes.
	epoch    leadership.Epoch
	proposal *pendingEntry
	// livenessFloor is the leadership's.
	livenessFloor int64
	// lowDue is the leadership's.
	lowDue bool

	now time.Time
	// leased: this replica held the lease after the writes were queued and before anything was read
	// for them. What is decided by reading alone may then be answered at once; otherwise it is
	// answered when the entry has been applied.
	leased bool
	space  diskSpace
	// reserve is what finds room if there is spaceNowhere: see Replica.reserve.
	reserve   group.Share
	logBehind bool
	// pass is where the next proposal is left, if nothing but its client waits for it; nil:
	// nowhere.
	pass Pass
	// later: the write at hand is evaluated again, for a later timestamp.
	later bool
	// over: the epoch ended, nothing of this has an effect.
	over bool

	kind proposal.Kind
	// splitStats, if not nil, is of a split that is to come.
	splitStats *reshape.SplitStats
	// change, if not nil, is the configuration that the entry leads to.
	change *group.Configuration
	batch  *engine.StateBatch
	delta  proposal.Delta
	// highest is the highest timestamp in the batch.
	highest hlc.Timestamp
	// slab is where the next pending writes come from.
	slab []proposal.Write
	// internal is what commands of this package's own add to the entry, and size about how large
	// the entry is.
	internal proposal.Entry
	size     int
	// ends is about how large what ends locks is of it: the request for that is small, whatever
	// the locks are.
	ends int
	// ready are answers that wait for nothing.
	ready []answer
	// again are writes that have more to do, and go back to the front of the queue.
	again []write
	// work is what came up about locks. reevaluate: what waits for locks has changed.
	work       lockWork
	reevaluate bool
	// woken waited for locks that the write at hand has released.
	woken []*concurrency.Waiter
}

var evaluations = sync.Pool{New: func() any { return new(evaluation) }}

// step is what the evaluator does next.
type step int

const (
	stepStop step = iota
	stepBarrier
	stepEvaluate
	stepPropose
)

// evaluateQueue evaluates and proposes until the queue is empty or enough is in flight. The caller
// has set evaluating.
func (r *Replica) evaluateQueue(pass Pass) {
	r.mu.Lock()
	e := r.mu.open
	r.mu.open = nil
	r.mu.Unlock()
	if e == nil {
		e = evaluations.Get().(*evaluation)
		e.r = r
		e.State, e.Vacant, e.Pending = r.state, &r.vacant, pendingView{e}
		e.PageBytes = int64(r.node.MaxEntryBytes)
		e.Coordination = evalContext{e}
	}
	if e.proposal == nil {
		e.pass = pass
	}
	for {
		switch e.take() {
		case stepStop:
			return
		case stepBarrier:
			r.proposeBarrier()
		case stepEvaluate:
			e.run()
		case stepPropose:
			e.propose()
			e.finish()
		}
	}
}

// release gives the evaluation back.
func (e *evaluation) release() {
	e.Reset()
	*e = evaluation{Evaluation: e.Evaluation, writes: e.writes[:0], ready: e.ready[:0],
		again: e.again[:0]}
	evaluations.Put(e)
}

// takesLocked says that a write can be evaluated on top of what is in the open proposal.
func (e *evaluation) takesLocked(w *write) bool {
	return !w.alone() && e.size+w.size <= e.r.node.MaxEntryBytes &&
		len(e.proposal.answers) < openAnswers
}

// openAnswers bounds what one open proposal takes in.
const openAnswers = 1024

// take takes writes from the queue, or ends the evaluator's work.
func (e *evaluation) take() step {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	// Under the lock under which writes are taken: a lease that was held before a write came proves
	// nothing for it.
	leaseTerm, leased := r.group.Lease()
	if e.proposal != nil {
		switch {
		case !r.mu.leadership.Is(e.epoch) || r.mu.leadership.BarrierDue() || !r.mu.leadership.Serving():
			return stepPropose
		case r.mu.queue.Len() > 0 && e.takesLocked(r.mu.queue.First()):
		case !r.waitsLocked(e):
			return stepPropose
		default:
			r.mu.open, r.mu.evaluating, e.pass = e, false, nil
			return stepStop
		}
	} else if !r.readyLocked() {
		r.mu.evaluating = false
		e.release()
		return stepStop
	}
	r.mu.closing.Awake()
	if r.mu.leadership.BarrierDue() {
		return stepBarrier
	}
	fresh := e.proposal == nil
	if fresh {
		e.size, e.ends = 0, 0
	}
	e.writes = e.writes[:0]
	for r.mu.queue.Len() > 0 {
		w := r.mu.queue.First()
		if (len(e.writes) > 0 || !fresh) && (e.size+w.size > r.node.MaxEntryBytes || w.alone()) {
			break
		}
		e.size += w.size
		alone := w.alone()
		e.writes = r.mu.queue.Pop(e.writes)
		if alone {
			break
		}
	}
	if fresh {
		r.mu.sequence++
		e.epoch = r.mu.leadership.Epoch()
		e.proposal = &pendingEntry{
			sequence: r.mu.sequence, term: e.epoch.Term, groupCommit: groupCommit{opened: time.Now()},
		}
		e.kind, e.delta, e.highest, e.internal = proposal.KindWrite, proposal.Delta{}, hlc.Timestamp{},
			proposal.Entry{}
		e.change, e.splitStats = nil, r.mu.splitStats
		r.mu.building = e.proposal
		e.over = false
	}
	e.lowDue = r.lowDueLocked()
	e.livenessFloor = r.mu.leadership.LivenessFloor()
	e.leased = leased && leaseTerm == e.epoch.Term
	return stepEvaluate
}

// run evaluates what was taken, proposes the outcome, unless it stays open, and answers what can be
// answered.
func (e *evaluation) run() {
	r := e.r
	r.node.Metrics.Writes.Queued.Sub(float64(len(e.writes)))
	e.now = time.Now()
	e.logBehind = r.node.LogBehind != nil && r.node.LogBehind()
	e.Descriptor = r.Descriptor()
	e.space, e.reserve = r.diskSpace(e.Descriptor), group.NoShare
	if e.space == spaceNowhere {
		e.reserve = r.reserve(e.Descriptor)
	}
	e.proposal.answers = slices.Grow(e.proposal.answers, len(e.writes))
	e.slab = make([]proposal.Write, len(e.writes))
	for i := range e.writes {
		if hook := r.node.Hooks.Evaluate; hook != nil {
			hook()
		}
		e.evaluate(&e.writes[i], &e.internal)
		e.handOver(&e.internal)
	}
	if err := e.Close(); err != nil {
		r.node.Logger.Error("reading the state failed", "partition", r.id, "error", err)
	}
	// Before the entry is on its way: the new holder of a lock decides when the next entry comes.
	e.answerReady()
	if !e.staysOpen() {
		e.propose()
	}
	e.finish()
}

// staysOpen says that there is no room for the proposal yet, or that it gathers.
func (e *evaluation) staysOpen() bool {
	r := e.r
	if e.over || len(e.again) > 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	p := e.proposal
	return r.mu.leadership.Is(e.epoch) && (len(p.answers) > 0 || len(p.writes) > 0 || p.effects) &&
		r.waitsLocked(e)
}

// answerReady answers what waits for nothing.
func (e *evaluation) answerReady() {
	for i := range e.ready {
		a := &e.ready[i]
		if a.done != nil {
			a.done(nil)
			continue
		}
		e.r.send(a)
	}
	clear(e.ready)
	e.ready = e.ready[:0]
}

// finish looks after what waits for locks.
func (e *evaluation) finish() {
	r := e.r
	clear(e.writes)
	if e.reevaluate {
		e.reevaluate = false
		r.mu.Lock()
		if r.mu.leadership.Is(e.epoch) && !r.mu.locks.ReevaluatesSoon(time.Now()) {
			r.mu.locks.Reevaluate(r.node.LockNow(), &e.work.Work)
		}
		r.mu.Unlock()
	}
	e.work.run(r)
}

// evaluate evaluates one write: it adds to the proposal, or to ready.
func (e *evaluation) evaluate(w *write, internal *proposal.Entry) {
	r := e.r
	e.proposal.plain = e.proposal.plain || w.internal != nil || !w.command.Transactional
	if w.internal != nil {
		propose, err := w.internal.evaluate(e, internal)
		switch {
		case errors.Is(err, errAgain):
			e.again = append(e.again, *w)
		case err != nil:
			w.internal.done(err)
		case propose:
			e.kind = max(e.kind, w.internal.kind)
			e.proposal.answers = append(e.proposal.answers, answer{done: w.internal.done})
		}
		return
	}
	q := w.pending.Request
	e.AtLeast = hlc.Timestamp{}
	e.begin(w)
	switch {
	case e.retriedSince(w):
		e.refuse(w, r.refuse.Retried(q))
		return
	case q.Term != e.epoch.Term:
		e.refuse(w, r.refuse.NotLeader(q))
		return
	case q.Generation != e.Descriptor.Generation:
		e.refuse(w, r.refuse.StaleEpoch(q, e.Descriptor))
		return
	case e.lowDue:
		e.refuse(w, r.refuse.UnbelievedClock(q))
		return
	case e.disconnected(w):
		e.refuse(w, r.refuse.Disconnected(q))
		return
	case expired(&w.pending, e.now) && !w.command.Late:
		if c := w.conflict(); c != nil {
			e.refuse(w, r.refuse.Locked(q, c))
		} else {
			e.refuse(w, r.refuse.DeadlineExceeded(q))
		}
		return
	case e.space == spaceElsewhere:
		e.refuse(w, r.refuse.HandsOver(q))
		return
	case e.logBehind:
		e.refuse(w, r.refuse.LogBehind(q))
		return
	}
	if refusal := e.checkSession(w); refusal != nil {
		e.refuse(w, refusal)
		return
	}
	if r.mu.locks.Held() != 0 && !w.command.Transactional && e.blocked(w) {
		return
	}
	for {
		if w.x != nil {
			e.Transaction, e.Aborted = &w.x.Transaction, w.x.history.Aborted
		}
		if err := w.command.Evaluate(&e.Evaluation, q); err != nil {
			e.refuse(w, r.refuse.ReadError(q, err))
			return
		}
		if !e.carryOut(w) {
			return
		}
		// What it has found expires before the timestamp that it would get.
		e.begin(w)
		r.node.Metrics.Writes.Reevaluated.Inc()
	}
}

// begin begins the evaluation of a write.
func (e *evaluation) begin(w *write) {
	e.Begin()
	e.CommitWait, e.Request, e.Since = e.r.commitWait.Load(), w.requestID(), w.since(e.r)
	e.DefaultTTL = time.Duration(e.r.defaultTTL.Load())
	e.Session, e.Waited, e.Aborted = w.session, w.conflict() != nil, false
	e.current = w
}

// tooLate says that what was found out expires at or below the timestamp at which the write would
// take effect. Then the write is evaluated again, for that timestamp or a later one: in a moment
// the caller's lock has been released, and others may have been read.
func (e *evaluation) tooLate(ts hlc.Timestamp) bool {
	if !e.HoldsBelow(ts) {
		e.AtLeast = hlc.Max(e.AtLeast, ts)
		e.later = true
	}
	return e.later
}

// refuse answers a write that has no effect, and for a reason that needs no proof.
func (e *evaluation) refuse(w *write, response *kvpb.Response) {
	e.ready = append(e.ready, answer{pending: w.pending, command: w.command, response: response})
}

// answerApplied answers a write with what is true once the proposal being built has been applied.
func (e *evaluation) answerApplied(w *write, response *kvpb.Response) {
	e.proposal.answers = append(e.proposal.answers, answer{pending: w.pending, command: w.command,
		response: response, hold: e.Hold})
}

// answerRead answers a write that writes nothing, because of what was read. sequence is of the
// proposal that carries the version that decided it; 0 if that is applied.
func (e *evaluation) answerRead(w *write, response *kvpb.Response, sequence uint64) {
	a := answer{pending: w.pending, command: w.command, response: response, hold: e.Hold}
	switch {
	case sequence == 0 && e.leased && !e.inEpoch():
		// What was in flight is not pending any more, but may be applied yet, or was just now: an
		// earlier attempt of this request too.
		e.refuse(w, e.r.refuse.NotLeader(w.pending.Request))
	case sequence == 0 && e.leased:
		// The same proof as a read's: the lease was held, then the state was read.
		e.ready = append(e.ready, a)
	case sequence == 0 || sequence == e.proposal.sequence || !e.leased:
		// If an entry of this term that is proposed now is committed, no other replica led when it was
		// evaluated. One that is on its way already proves nothing: it may have been acknowledged
		// before the question, and its acknowledgements come late. If this one has an effect, then
		// that one has.
		e.proposal.answers = append(e.proposal.answers, a)
	default:
		e.answerWith(a, sequence)
	}
}

// inEpoch says whether the epoch still lasts in which this began: all that was read was read in it.
func (e *evaluation) inEpoch() bool {
	e.r.mu.Lock()
	defer e.r.mu.Unlock()
	return e.r.mu.leadership.Is(e.epoch)
}

// answerWith answers when the pending entry that has the sequence is applied.
func (e *evaluation) answerWith(a answer, sequence uint64) {
	r := e.r
	r.mu.Lock()
	if r.mu.leadership.Is(e.epoch) {
		if p := r.mu.proposed(sequence); p != nil {
			p.answers = append(p.answers, a)
			r.mu.Unlock()
			return
		}
		r.mu.Unlock()
		e.ready = append(e.ready, a) // applied meanwhile
		return
	}
	r.mu.Unlock()
	e.over = true
	e.proposal.answers = append(e.proposal.answers, a)
}

// carryOut does what has come of the evaluation of a write. If it says again, nothing was done, and
// the write is to be evaluated again.
func (e *evaluation) carryOut(w *write) (again bool) {
	q := w.pending.Request
	var err error
	e.later = false
	if e.refusedForSpace(w) {
		return false
	}
	switch e.Outcome {
	case command.Refused:
		e.refuse(w, e.Response)
	case command.Answered:
		e.answerRead(w, e.Response, e.Sequence)
	case command.NothingDone:
		e.answerNothingDone(w, e.Response, e.Sequence)
	case command.Duplicate:
		e.answerDuplicate(w, e.Response, e.Sequence)
	case command.Waits:
	case command.EpochOver:
		e.over = true
		e.refuse(w, e.r.refuse.NotLeader(q))
	case command.Decided:
		err = e.decided(w)
	case command.Written:
		ts, ok, failed := e.write(w, e.Ops...)
		if failed == nil && ok && e.Record != nil {
			failed = e.Record(ts, e.batch)
		}
		if failed == nil && ok && e.OnePhase != nil {
			failed = e.committedInOnePhase(e.OnePhase, ts)
		}
		err = e.wroteAt(w, ts, ok, failed)
	case command.Loaded:
		ts, ok, failed := e.loadBlock(w)
		err = e.wroteAt(w, ts, ok, failed)
	case command.Acquired:
		if e.Acquisition.Volatile {
			err = e.acquireVolatile(w)
			break
		}
		ts, ok, failed := e.acquire(w)
		err = e.wroteAt(w, ts, ok, failed)
	case command.Resolved:
		err = e.resolve(w)
	default:
		err = fmt.Errorf("a %s was evaluated without an outcome", w.command.Name)
	}
	if err != nil {
		e.refuse(w, e.r.refuse.ReadError(q, err))
	}
	return e.later
}
