package eval

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/timing"
)

var evaluations = sync.Pool{New: func() any { return new(evaluation) }}

// step says what the evaluator does next.
type step int

const (
	stepStop step = iota
	stepBarrier
	stepEvaluate
	stepPropose
)

// evaluateQueue evaluates and proposes until the queue is empty or enough is in flight. The caller
// has set evaluating.
func (r *Evaluator) evaluateQueue(pass Pass) {
	r.Mu.Lock()
	e := r.open
	if e != nil {
		r.open, e.proposal.Gathers = nil, false
	}
	r.Mu.Unlock()
	if e == nil {
		e = evaluations.Get().(*evaluation)
		e.r = r
		e.State, e.Vacant, e.Pending = r.State, &r.Vacant, pendingView{e}
		e.PageBytes = int64(r.Node.MaxEntryBytes)
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

// take takes writes from the queue, or ends the evaluator's run.
func (e *evaluation) take() step {
	r := e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	// The lease is read under the lock under which writes are taken: a lease that was held before a
	// write came proves nothing for it.
	leaseTerm, leased := r.Group.Lease()
	if e.proposal != nil {
		switch {
		case !r.Mu.Leadership.Is(e.epoch) || r.Mu.Leadership.BarrierDue() || !r.Mu.Leadership.Serving():
			return stepPropose
		case r.queue.Len() > 0 && e.takesLocked(r.queue.First()):
		case !r.waitsLocked(e):
			return stepPropose
		default:
			r.open, r.evaluating, e.pass = e, false, nil
			e.proposal.Gathers = true
			if e.proposal.Gathered.IsZero() {
				e.proposal.Gathered = time.Now()
			}
			return stepStop
		}
	} else if !r.readyLocked() {
		r.evaluating = false
		e.release()
		return stepStop
	}
	r.Mu.Closing.Awake()
	if r.Mu.Leadership.BarrierDue() {
		return stepBarrier
	}
	fresh := e.proposal == nil
	if fresh {
		e.size, e.ends = 0, 0
	}
	e.writes = e.writes[:0]
	for r.queue.Len() > 0 {
		w := r.queue.First()
		if (len(e.writes) > 0 || !fresh) && (e.size+w.size > r.Node.MaxEntryBytes || w.alone()) {
			break
		}
		e.size += w.size
		alone := w.alone()
		e.writes = r.queue.Pop(e.writes)
		if alone {
			break
		}
	}
	if fresh {
		r.Mu.Sequence++
		e.epoch = r.Mu.Leadership.Epoch()
		e.proposal = &machine.Entry{
			Sequence: r.Mu.Sequence, Term: e.epoch.Term,
		}
		e.kind, e.delta, e.highest, e.internal = proposal.KindWrite, proposal.Delta{}, hlc.Timestamp{},
			proposal.Entry{}
		e.groupCommit = groupCommit{opened: time.Now()}
		e.change, e.splitStats = nil, r.splitStats
		r.Mu.Building = e.proposal
		e.over = false
	}
	e.lowDue = r.LowDueLocked()
	e.livenessFloor = r.Mu.Leadership.LivenessFloor()
	e.leased = leased && leaseTerm == e.epoch.Term
	return stepEvaluate
}

// run evaluates the writes that were taken, proposes the entry unless it stays open, and sends the
// answers that need not wait.
func (e *evaluation) run() {
	r := e.r
	r.Node.Metrics.Writes.Queued.Sub(float64(len(e.writes)))
	e.now = time.Now()
	e.logBehind = r.Node.LogBehind()
	e.Descriptor = r.Descriptor()
	e.space, e.reserve = r.diskSpace(e.Descriptor), group.NoShare
	if e.space == spaceNowhere {
		e.reserve = r.reserve(e.Descriptor)
	}
	e.proposal.Answers = slices.Grow(e.proposal.Answers, len(e.writes))
	e.slab = make([]proposal.Write, len(e.writes))
	for i := range e.writes {
		if hook := r.Node.Hooks.Evaluate; hook != nil {
			hook()
		}
		e.writes[i].pending.Timing.EnterAt(timing.Evaluate, e.now)
		e.evaluate(&e.writes[i], &e.internal)
		e.handOver(&e.internal)
	}
	if err := e.Close(); err != nil {
		r.Node.Logger.Error("reading the state failed", "partition", r.ID, "error", err)
	}
	// Before the entry is proposed: the new holder of a lock decides when the next entry comes.
	e.answerReady()
	if !e.staysOpen() {
		e.propose()
	}
	e.finish()
}

// staysOpen reports that there is no room for the proposal yet, or that it gathers more writes.
func (e *evaluation) staysOpen() bool {
	r := e.r
	if e.over || len(e.again) > 0 {
		return false
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	p := e.proposal
	return r.Mu.Leadership.Is(e.epoch) && (len(p.Answers) > 0 || len(p.Writes) > 0 || p.Effects) &&
		r.waitsLocked(e)
}

// answerReady sends the answers that need not wait.
func (e *evaluation) answerReady() {
	for i := range e.ready {
		a := &e.ready[i]
		if a.Done != nil {
			a.Done(nil)
			continue
		}
		e.r.Send(a)
	}
	clear(e.ready)
	e.ready = e.ready[:0]
}

// finish resumes requests whose locks were released.
func (e *evaluation) finish() {
	r := e.r
	clear(e.writes)
	if e.reevaluate {
		e.reevaluate = false
		r.Mu.Lock()
		if r.Mu.Leadership.Is(e.epoch) && !r.Mu.Locks.Timer.Soon(time.Now()) {
			r.Mu.Locks.Reevaluate(r.Node.LockNow(), &e.work)
		}
		r.Mu.Unlock()
	}
	r.Do(&e.work)
}

// evaluate evaluates one write: it adds to the proposal, or to ready.
func (e *evaluation) evaluate(w *write, internal *proposal.Entry) {
	r := e.r
	e.plain = e.plain || w.internal != nil || !w.command.Transactional
	if w.internal != nil {
		propose, err := w.internal.evaluate(e, internal)
		switch {
		case errors.Is(err, errAgain):
			e.again = append(e.again, *w)
		case err != nil:
			w.internal.done(err)
		case propose:
			e.kind = max(e.kind, w.internal.kind)
			e.proposal.Answers = append(e.proposal.Answers, machine.Answer{Done: w.internal.done})
		}
		return
	}
	q := w.pending.Request
	e.AtLeast = hlc.Timestamp{}
	e.begin(w)
	switch {
	case e.retriedSince(w):
		e.refuse(w, r.Refuse.Retried(q))
		return
	case q.Term != e.epoch.Term:
		e.refuse(w, r.Refuse.NotLeader(q))
		return
	case q.Generation != e.Descriptor.Generation:
		e.refuse(w, r.Refuse.StaleEpoch(q, e.Descriptor))
		return
	case e.lowDue:
		e.refuse(w, r.Refuse.UnbelievedClock(q))
		return
	case e.disconnected(w):
		e.refuse(w, r.Refuse.Disconnected(q))
		return
	case w.pending.Expired(e.now) && !w.command.Late:
		if c := w.conflict(); c != nil {
			e.refuse(w, r.Refuse.Locked(q, c))
		} else {
			e.refuse(w, r.Refuse.DeadlineExceeded(q))
		}
		return
	case e.space == spaceElsewhere:
		e.refuse(w, r.Refuse.HandsOver(q))
		return
	case e.logBehind:
		e.refuse(w, r.Refuse.LogBehind(q))
		return
	}
	if refusal := e.checkSession(w); refusal != nil {
		e.refuse(w, refusal)
		return
	}
	if r.Mu.Locks.Held() != 0 && !w.command.Transactional && e.blocked(w) {
		return
	}
	for {
		if w.x != nil {
			e.Transaction, e.Aborted = &w.x.Transaction, w.x.history.Aborted
		}
		if err := w.command.Evaluate(&e.Evaluation, q); err != nil {
			e.refuse(w, r.Refuse.ReadError(q, err))
			return
		}
		if !e.carryOut(w) {
			return
		}
		// A value that was read expires before the timestamp that the write would get.
		e.begin(w)
		r.Node.Metrics.Writes.Reevaluated.Inc()
	}
}

// begin begins the evaluation of a write.
func (e *evaluation) begin(w *write) {
	e.Begin()
	e.CommitWait, e.Request, e.Since = e.r.commitWait.Load(), w.requestID(), w.since(e.r.Machine)
	e.DefaultTTL = time.Duration(e.r.defaultTTL.Load())
	e.Session, e.Waited, e.Aborted = w.session, w.conflict() != nil, false
	e.current = w
}

// carryOut carries out the outcome of a write's evaluation. If it returns again, nothing was done,
// and the write is to be evaluated once more.
func (e *evaluation) carryOut(w *write) (again bool) {
	q := w.pending.Request
	var err error
	e.later = false
	if e.refusedForSpace(w) || e.refusedForQuota(w) {
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
		e.refuse(w, e.r.Refuse.NotLeader(q))
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
		e.refuse(w, e.r.Refuse.ReadError(q, err))
	}
	return e.later
}
