package read

import (
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Start takes in a read, and answers it: at once, from the pool, or later.
func (r *Reader) Start(p config.Pending, c *command.Command) {
	r.startRead(&read{pending: p, command: c})
}

// ServePlaced serves a read whose timestamp is chosen and whose place between the writes is found:
// the last step of a read.
func (r *Reader) ServePlaced(p config.Pending, d *clusterpb.Partition, at hlc.Timestamp) {
	r.Hold()
	r.serveNow(&read{r: r, command: command.Of(p.Request), pending: p,
		placed: placed{descriptor: d, timestamp: at}, lockedReading: &plainReading})
}

// startRead checks a read and serves it.
func (r *Reader) startRead(rd *read) {
	rd.r = r
	if refusal := r.checkRead(rd); refusal != nil {
		r.answerRead(rd, refusal)
		return
	}
	r.Hold() // until the read is answered
	if asked := rd.pending.Request.ReplicaRead; asked != nil {
		r.startClosed(rd, asked)
		if rd.closed.admitted || rd.changes != nil || !r.leads() {
			r.readClosed(rd)
			return
		}
	}
	leaseTerm, leased := r.Group.Lease()
	r.admit(rd, leaseTerm, leased)
}

// checkRead checks a read by itself, and takes its timestamp.
func (r *Reader) checkRead(rd *read) *kvpb.Response {
	q := rd.pending.Request
	if rd.lockedReading == nil {
		rd.lockedReading = &plainReading
	}
	asked, problem := rd.command.CheckRead(r.Descriptor(), q)
	if rd.timestampOnly {
		problem = nil // the key that is asked about need not lie in the partition
	}
	if problem == nil {
		problem = rd.command.CheckAdmission(q, &asked)
	}
	rd.at, rd.uncertainUntil = asked.At, asked.UncertainUntil
	r.startChanges(rd, asked.Changes)
	context := asked.Context
	if problem == nil && context != nil {
		problem = rd.checkContext(context)
	}
	if problem != nil {
		return r.Refuse.Problem(q, problem)
	}
	if of := asked.Refresh; of != nil {
		rd.detail()
		rd.wait.Transaction, rd.wait.Begun, rd.wait.Yields = of.Transaction, of.Begun, of.Yield
	}
	rd.session = wire.FromTimestamp(q.Session)
	if asked := q.ReplicaRead; asked != nil {
		rd.session = hlc.Max(rd.session, wire.FromTimestamp(asked.AtLeast))
	}
	// INVARIANT: the clock is read before leadership is proved.
	var sure bool
	if rd.chosen, sure = r.Node.Clock.Reading(); !sure {
		return r.Refuse.UntrustedClock(q)
	}
	if context != nil && rd.observed.IsZero() {
		rd.observed = rd.chosen
	}
	if !r.Node.CheckAhead(rd.session, rd.chosen) {
		return r.Refuse.SessionAhead(q, rd.session)
	}
	if !rd.at.IsZero() {
		if !r.Node.CheckAhead(rd.at, rd.chosen) {
			return r.Refuse.InFuture(q, rd.at, rd.chosen)
		}
		return r.TooOld(q, rd.oldest(rd.at))
	}
	rd.chosen = hlc.Max(rd.chosen, rd.session)
	if rd.changes != nil {
		return r.TooOld(q, rd.changes.after)
	}
	return nil
}

// admit takes a read into the leadership of provedTerm if proved is set; otherwise it asks for a
// proof.
func (r *Reader) admit(rd *read, provedTerm uint64, proved bool) {
	q := rd.pending.Request
	r.Mu.Lock()
	lowDue := r.LowDueLocked()
	l, d := r.Mu.Leadership, r.Descriptor()
	switch {
	case r.UnavailableLocked() != nil:
		u := r.UnavailableLocked()
		r.Mu.Unlock()
		r.endRead(rd, u.Refuse(r.Machine, q))
		return
	case !l.IsLeader || (q.Term != 0 && q.Term != l.Term) || (rd.term != 0 && rd.term != l.Term):
		r.Mu.Unlock()
		r.Group.Wake()
		r.endRead(rd, r.Refuse.NotLeader(q))
		return
	case q.Generation != d.Generation:
		r.Mu.Unlock()
		r.endRead(rd, r.Refuse.StaleEpoch(q, d))
		return
	case lowDue:
		r.Mu.Unlock()
		r.endRead(rd, r.Refuse.UnbelievedClock(q))
		return
	case rd.under != nil && !r.IsLeadershipLocked(rd.under):
		r.Mu.Unlock()
		r.endRead(rd, r.Refuse.LeadershipChanged(q, nil))
		return
	case rd.term != 0 && !(proved && provedTerm == l.Term && r.Mu.Leadership.Serving()):
		// Leadership is proved, but the gate is closed: the outcome of some proposal is unknown.
		r.Mu.Unlock()
		r.endRead(rd, r.Refuse.NotLeader(q))
		return
	}
	var step readStep
	if proved && provedTerm == l.Term && r.Mu.Leadership.Serving() {
		rd.descriptor, rd.epoch = d, r.Mu.Leadership.Epoch()
		step = r.registerLocked(rd)
	} else {
		step = r.proveLocked(rd)
	}
	r.Mu.Unlock()
	r.goOn(rd, &step)
}

// proveLocked makes a read wait until a quorum confirms that this replica leads; then the read is
// admitted again.
func (r *Reader) proveLocked(rd *read) readStep {
	switch {
	case rd.part != nil && !rd.part.waits():
		return readStep{do: readLeave}
	case r.TooManyReadsLocked():
		return refuseStep(r.Refuse.Overloaded(rd.pending.Request,
			"reads wait for a confirmation of its leadership"))
	}
	rd.term = r.Mu.Leadership.Term
	rd.pending.Timing.Enter(timing.Proof)
	r.Mu.WaitingReads++
	if !r.reads.confirm(rd) {
		return readStep{do: readWait}
	}
	return readStep{do: readConfirm}
}

// confirm asks for a read index for all reads that wait for one.
func (r *Reader) confirm() {
	r.Mu.Lock()
	reads := r.reads.ask()
	r.Mu.Unlock()
	if len(reads) > 0 {
		r.Group.ReadIndex(func(err error) { r.confirmed(reads, err) })
	}
}

// confirmed resumes reads whose read index is applied. The group calls it.
func (r *Reader) confirmed(reads []*read, err error) {
	r.Mu.Lock()
	r.Mu.WaitingReads -= len(reads)
	r.Mu.Unlock()
	resume := func() {
		r.confirm()
		for _, rd := range reads {
			rd.pending.Timing.Enter(timing.Evaluate)
			switch {
			case err == nil:
				r.admit(rd, rd.term, true)
			case r.Leadership().IsLeader:
				r.endRead(rd, r.Refuse.Unconfirmed(rd.pending.Request, err))
			default:
				r.endRead(rd, r.Refuse.NotLeader(rd.pending.Request))
			}
		}
	}
	if !r.GoActive(resume) {
		for _, rd := range reads {
			r.endRead(rd, r.Refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
		}
		r.confirm()
	}
}

// registerAgain registers a read that has waited, unless the entry that it waited for was lost.
func (r *Reader) registerAgain(rd *read) {
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(rd.epoch) {
		r.Mu.Unlock()
		if moved := r.moved(rd); moved != nil {
			r.endRead(rd, moved)
			return
		}
		r.refuseRead(rd)
		return
	}
	step := r.registerLocked(rd)
	r.Mu.Unlock()
	r.goOn(rd, &step)
}

// registerLocked gives the read its timestamp. The read is then served, or waits for transactions
// or for entries in flight.
func (r *Reader) registerLocked(rd *read) readStep {
	rd.timestamp = r.chooseLocked(rd)
	if rd.latest() && rd.wait.Settled.IsZero() && rd.wait.Committed.IsZero() &&
		rd.chosen.Less(rd.timestamp) {
		r.Node.Metrics.Reads.Restarted.Inc()
	}
	if early := r.earlyLocked(rd.timestamp); early > 0 && !rd.timestampOnly {
		if rd.term == 0 {
			return r.proveLocked(rd) // which makes the lease longer
		}
		return refuseStep(r.Refuse.BeyondLease(rd.pending.Request, rd.timestamp, early))
	}
	wait := r.placeLocked(rd)
	if r.Mu.Locks.Len() != 0 {
		if step, blocked := r.waitForLocksLocked(rd); blocked {
			return step
		}
	}
	switch {
	case wait == nil:
		return readStep{do: readServe}
	case rd.part != nil && !rd.part.waits():
		return readStep{do: readLeave}
	case r.TooManyReadsLocked():
		return refuseStep(r.Refuse.Overloaded(rd.pending.Request, "reads wait for writes in flight"))
	}
	r.Mu.WaitingReads++
	rd.pending.Timing.Enter(timing.Latch)
	wait.Waiters = append(wait.Waiters, rd)
	r.Node.Metrics.Reads.Waited.Inc()
	if wait.Gathers {
		return readStep{do: readKick}
	}
	return readStep{do: readWait}
}

// chooseLocked chooses the read's timestamp.
func (r *Reader) chooseLocked(rd *read) hlc.Timestamp {
	switch {
	case !rd.latest():
		return rd.at
	case !rd.wait.Settled.IsZero():
		return hlc.Max(rd.wait.Settled, rd.wait.Committed)
	}
	// A version may be of a faster clock than this one, and everything acknowledged must be
	// visible. That holds also until the read has met all locks, even if it knows of a commit by
	// now: other versions below that commit may be acknowledged, and so may a version that is
	// applied meanwhile.
	return hlc.Max(hlc.Max(rd.chosen, r.Mu.Applied.Highest), rd.wait.Committed)
}

// Resume continues a read after the entry that it waited for is applied.
func (rd *read) Resume() {
	r := rd.r
	if !r.GoActive(func() { r.resumed(rd) }) {
		r.endRead(rd, r.Refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
	}
}

func (r *Reader) resumed(rd *read) {
	rd.pending.Timing.Enter(timing.Evaluate)
	if moved := r.moved(rd); moved != nil {
		r.endRead(rd, moved)
		return
	}
	if !rd.belowPending() && !rd.unplaced {
		// No other write at or below the read's timestamp can be in flight since the read is in the
		// timestamp cache.
		if rd.part != nil {
			rd.part.ready()
			return
		}
		r.serveNow(rd)
		return
	}
	r.registerAgain(rd)
}

// serve reads the engine at the read's timestamp and answers.
func (r *Reader) serve(rd *read) {
	if rd.part != nil {
		rd.part.ready()
		return
	}
	f := rd.command.Footprint(rd.pending.Request)
	if !f.Long() || rd.pending.Request.Admit ||
		rd.changes != nil && rd.timestamp.LessEq(rd.changes.quiet) {
		r.serveNow(rd)
		return
	}
	rd.pending.Timing.Enter(timing.Queue)
	if !r.GoLong(func() {
		began := time.Now()
		rd.pending.Timing.EnterAt(timing.Evaluate, began)
		r.serveNow(rd)
		r.Work.Span(began)
	}) {
		r.endRead(rd,
			r.Refuse.Overloaded(rd.pending.Request, "reads of many rows are being served by this server"))
	}
}

// views are reused: a View is passed to the command's function, and so lies on the heap.
var views = sync.Pool{New: func() any { return new(command.View) }}

func (r *Reader) serveNow(rd *read) {
	if rd.pending.Request.TimeoutMicros != 0 && rd.pending.Expired(time.Now()) {
		r.endRead(rd, r.Refuse.DeadlineExceeded(rd.pending.Request))
		return
	}
	if rd.pending.Request.Admit {
		r.answerAdmission(rd)
		return
	}
	view := views.Get().(*command.View)
	*view = command.View{
		State: r.State, Vacant: &r.Vacant, Descriptor: rd.descriptor, At: rd.timestamp,
		Uncertain: rd.uncertain(), Partition: r, Since: rd.quietUpTo(),
	}
	response, err := rd.command.Read(view, rd.pending.Request)
	rd.seen = view.Seen
	*view = command.View{}
	views.Put(view)
	if refusal := r.TooOld(rd.pending.Request, rd.oldest(rd.timestamp)); refusal != nil {
		if rd.at.IsZero() && rd.closed == nil && rd.changes == nil && rd.restarts < maxRestarts {
			r.restart(rd)
			return
		}
		response, err = refusal, nil
	}
	if moved := r.moved(rd); moved != nil {
		command.ReleaseRows(response.GetScan().GetRows())
		response, err = moved, nil
	}
	if err != nil {
		if u := asUncertainty(err); u != nil && (r.move(rd, u.Timestamp) || r.moveLatest(rd, u)) {
			return
		}
		response = r.failedRead(rd, err)
	}
	if response.Error == nil && r.holdRead(rd) {
		command.ReleaseRows(response.GetScan().GetRows())
		return
	}
	if rd.changes != nil && response.Error == nil && r.changesQuiet(rd, response.GetChanges()) {
		return
	}
	switch {
	case rd.closed != nil && rd.epoch == (leadership.Epoch{}): // counted
	case rd.term == 0:
		r.Node.Metrics.Reads.Lease.Inc()
	default:
		r.Node.Metrics.Reads.ReadIndex.Inc()
	}
	if rd.closed != nil {
		response.ReadAt = wire.ToTimestamp(rd.timestamp)
	}
	if response.Now == nil || response.Now.Wall == 0 {
		r.Node.Tell(response, rd.timestamp)
	}
	r.Work.Read(response)
	r.endRead(rd, response)
	command.ReleaseRows(response.GetScan().GetRows())
}

// maxRestarts bounds how often a read of the latest state starts again because garbage collection
// has passed its timestamp. That takes a collection window about as short as the read is long.
const maxRestarts = 3

// restart starts a read again, with a later timestamp.
func (r *Reader) restart(rd *read) {
	rd.restarts++
	r.Node.Metrics.Reads.MovedCollected.Inc()
	rd.term = 0
	if rd.lockedReading != &plainReading {
		rd.wait.Settled, rd.wait.Committed = hlc.Timestamp{}, hlc.Timestamp{}
	}
	now, sure := r.Node.Clock.Reading()
	if !sure {
		r.endRead(rd, r.Refuse.UntrustedClock(rd.pending.Request))
		return
	}
	rd.chosen = hlc.Max(now, rd.session)
	leaseTerm, leased := r.Group.Lease()
	r.admit(rd, leaseTerm, leased)
}

// uncertain returns the timestamps up to which versions and expiries are uncertain for a read.
func (rd *read) uncertain() (u mvcc.Limits) {
	if rd.timestamp.Less(rd.limit) {
		u.Versions = rd.limit
	}
	if rd.timestamp.Less(rd.expiries) {
		u.Expiries = rd.expiries
	}
	return u
}

// asUncertainty returns where and when a read met something uncertain; nil if err is another error.
func asUncertainty(err error) *mvcc.UncertaintyError {
	var u *mvcc.UncertaintyError
	errors.As(err, &u)
	return u
}

// failedRead returns the answer to a read that ended in an error.
func (r *Reader) failedRead(rd *read, err error) *kvpb.Response {
	if u := asUncertainty(err); u != nil {
		return r.Refuse.Uncertain(rd.pending.Request, rd.timestamp, u.Timestamp, u.Expiry)
	}
	return r.Refuse.ReadError(rd.pending.Request, err)
}
