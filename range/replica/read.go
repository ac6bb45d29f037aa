package replica

import (
	"errors"
	"sync"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/leadership"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// How a read is served. The order of the steps is what makes it linearisable:
//
//  1. chosen = a reading of the clock.
//  2. Leadership is proved: the lease stands at some moment t, or a quorum confirms this leader at
//     some moment t.
//  3. Under the lock: this replica leads at the term of the proof and is serving. The read takes
//     its timestamp T, the later of chosen and the highest applied timestamp, notes itself in the
//     timestamp cache, and looks for pending writes at or below T.
//  4. It waits for that (spans), or reads below it (a single key).
//  5. It reads the engine at T. No further proof is needed, however long the process may have been
//     paused since 2:
//
// Everything acknowledged before t is visible. What earlier leaders acknowledged is in the log
// before this term's first entry, which is applied; what this one acknowledged was applied before;
// and no later leader existed before t. Its timestamp is not above T, because the highest applied
// timestamp is not.
//
// Nothing at or below T is written later. By this leader: its writes ask the timestamp cache under
// the same lock. By a later one: its timestamps begin above its clock plus MaxAhead, read after t,
// and above everything applied. That is above T too, for if T is ahead of this server's physical
// clock it is served only as long before the end of the lease (lease_check.go). So what is read is
// the state at T for ever, and it is at least as new as the state at t, which lies between the
// request and its answer.
//
// After 5 the garbage collection threshold is compared with T: it is published before anything
// below it is removed. So is the generation of the descriptor: what splits off may leave this node
// as soon as that is applied here.
type read struct {
	pending config.Pending
	command *command.Command
	// part is set if it is one of several partitions that are read together: it is not served by
	// itself.
	part part
	// unplaced: it waits for the partition to be what it will be, and is in no timestamp cache.
	unplaced bool
	// momentOnly: nothing is read. It is ready when its timestamp is known; see snapshot_ts.go.
	momentOnly bool
	session    hlc.Timestamp
	// at is the timestamp that the client asked for; zero: the latest.
	at hlc.Timestamp
	// uncertainUntil is the client's uncertainty limit, with at.
	uncertainUntil hlc.Timestamp
	chosen         hlc.Timestamp

	// term is of the leadership that admitted it, for a read that waits for a read index.
	term uint64
	// Once it is registered:
	timestamp hlc.Timestamp
	limit     hlc.Timestamp
	// expiries is what limit is for expiries.
	expiries   hlc.Timestamp
	epoch      leadership.Epoch
	descriptor *clusterpb.Partition
	// restarts counts how often it began anew.
	restarts int
	// closed is set if any replica may answer.
	closed *closedReading
	// changes is set for a read of changes.
	changes *changesReading
	// seen is the highest timestamp of the versions with commit wait that it has seen; zero if
	// there were none.
	seen hlc.Timestamp

	// Because of transactions; never nil once it is checked, and shared by the reads that need none
	// of it.
	*lockedReading
}

// part is one of several partitions that are read together. It takes what comes of its read,
// instead of a client: one call of refused, of ready, or of waits that returned false.
type part interface {
	// refused takes the answer of a partition that is not read.
	refused(*kvpb.Response)
	// ready says that the partition can be read; the read counts as active until its replica is
	// left.
	ready()
	// waits says that the read has to wait for something before it is ready. If it returns false
	// the read is over instead.
	waits() bool
}

// startRead checks a read and serves it: at once, in the pool, or later.
func (r *Replica) startRead(rd *read) {
	if refusal := r.checkRead(rd); refusal != nil {
		r.answerRead(rd, refusal)
		return
	}
	r.active.Add(1) // until it is answered
	if asked := rd.pending.Request.ReplicaRead; asked != nil {
		r.startClosed(rd, asked)
		if rd.closed.admitted || rd.changes != nil || !r.leads() {
			r.readClosed(rd)
			return
		}
	}
	leaseTerm, leased := r.group.Lease()
	r.admit(rd, leaseTerm, leased)
}

// checkRead looks at a read by itself, and takes its timestamp.
func (r *Replica) checkRead(rd *read) *kvpb.Response {
	q := rd.pending.Request
	if rd.lockedReading == nil {
		rd.lockedReading = &plainReading
	}
	asked, problem := rd.command.CheckRead(r.Descriptor(), q)
	if rd.momentOnly {
		problem = nil // what is asked about need not lie in the partition
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
		return r.refuse.Problem(q, problem)
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
	if rd.chosen, sure = r.node.Clock.Reading(); !sure {
		return r.refuse.UntrustedClock(q)
	}
	if context != nil && rd.observed.IsZero() {
		rd.observed = rd.chosen
	}
	if !r.node.CheckAhead(rd.session, rd.chosen) {
		return r.refuse.SessionAhead(q, rd.session)
	}
	if !rd.at.IsZero() {
		if !r.node.CheckAhead(rd.at, rd.chosen) {
			return r.refuse.InFuture(q, rd.at, rd.chosen)
		}
		return r.TooOld(q, rd.oldest(rd.at))
	}
	rd.chosen = hlc.Max(rd.chosen, rd.session)
	if rd.changes != nil {
		return r.TooOld(q, rd.changes.after)
	}
	return nil
}

// TooOld refuses what garbage collection has made unreadable; nil if it can be read.
func (r *Replica) TooOld(q *kvpb.Request, at hlc.Timestamp) *kvpb.Response {
	if threshold := *r.threshold.Load(); at.Less(threshold) {
		return r.refuse.TooOld(q, at, threshold)
	}
	return nil
}

// admit takes a read into the leadership of provedTerm, if proved; without a proof it asks for one.
func (r *Replica) admit(rd *read, provedTerm uint64, proved bool) {
	q := rd.pending.Request
	r.mu.Lock()
	lowDue := r.lowDueLocked()
	l, d := r.mu.leadership, r.Descriptor()
	switch {
	case r.unavailableLocked() != nil:
		u := r.unavailableLocked()
		r.mu.Unlock()
		r.endRead(rd, u.refuse(r, q))
		return
	case !l.IsLeader || (q.Term != 0 && q.Term != l.Term) || (rd.term != 0 && rd.term != l.Term):
		r.mu.Unlock()
		r.group.Wake()
		r.endRead(rd, r.refuse.NotLeader(q))
		return
	case q.Generation != d.Generation:
		r.mu.Unlock()
		r.endRead(rd, r.refuse.StaleEpoch(q, d))
		return
	case lowDue:
		r.mu.Unlock()
		r.endRead(rd, r.refuse.UnbelievedClock(q))
		return
	case rd.under != nil && !r.isLeadershipLocked(rd.under):
		r.mu.Unlock()
		r.endRead(rd, r.refuse.LeadershipChanged(q, nil))
		return
	case rd.term != 0 && !(proved && provedTerm == l.Term && r.mu.leadership.Serving()):
		// It has its proof, but the gate is closed: the outcome of something is open.
		r.mu.Unlock()
		r.endRead(rd, r.refuse.NotLeader(q))
		return
	}
	var step readStep
	if proved && provedTerm == l.Term && r.mu.leadership.Serving() {
		rd.descriptor, rd.epoch = d, r.mu.leadership.Epoch()
		step = r.registerLocked(rd)
	} else {
		step = r.proveLocked(rd)
	}
	r.mu.Unlock()
	r.goOn(rd, &step)
}

// proveLocked has a read wait for a quorum's word that this replica leads, after which it is
// admitted once more.
func (r *Replica) proveLocked(rd *read) readStep {
	switch {
	case rd.part != nil && !rd.part.waits():
		return readStep{do: readLeave}
	case r.tooManyReadsLocked():
		return refuseStep(r.refuse.Overloaded(rd.pending.Request,
			"reads wait for a confirmation of its leadership"))
	}
	rd.term = r.mu.leadership.Term
	if !r.mu.reads.confirm(rd) {
		return readStep{do: readWait}
	}
	return readStep{do: readConfirm}
}

// tooManyReadsLocked says that no more reads may wait.
func (r *Replica) tooManyReadsLocked() bool {
	return r.mu.reads.waiting+r.mu.locks.WaitingReads() >= r.node.MaxWaitingReads
}

// confirm asks for a read index for all reads that wait for one.
func (r *Replica) confirm() {
	r.mu.Lock()
	reads := r.mu.reads.ask()
	r.mu.Unlock()
	if len(reads) > 0 {
		r.group.ReadIndex(func(err error) { r.confirmed(reads, err) })
	}
}

// confirmed goes on with reads whose read index is applied. It is called by the group.
func (r *Replica) confirmed(reads []*read, err error) {
	r.mu.Lock()
	r.mu.reads.waiting -= len(reads)
	r.mu.Unlock()
	resume := func() {
		r.confirm()
		for _, rd := range reads {
			switch {
			case err == nil:
				r.admit(rd, rd.term, true)
			case r.Leadership().IsLeader:
				r.endRead(rd, r.refuse.Unconfirmed(rd.pending.Request, err))
			default:
				r.endRead(rd, r.refuse.NotLeader(rd.pending.Request))
			}
		}
	}
	if !r.goActive(resume) {
		for _, rd := range reads {
			r.endRead(rd, r.refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
		}
		r.confirm()
	}
}

// registerAgain registers a read that has waited, if it was not for nothing.
func (r *Replica) registerAgain(rd *read) {
	r.mu.Lock()
	if !r.mu.leadership.Is(rd.epoch) {
		r.mu.Unlock()
		if moved := r.moved(rd); moved != nil {
			r.endRead(rd, moved)
			return
		}
		r.refuseRead(rd)
		return
	}
	step := r.registerLocked(rd)
	r.mu.Unlock()
	r.goOn(rd, &step)
}

// registerLocked gives the read its timestamp, and has it served, or wait for transactions, or for
// what is in flight.
func (r *Replica) registerLocked(rd *read) readStep {
	rd.timestamp = r.chooseLocked(rd)
	if rd.latest() && rd.wait.Settled.IsZero() && rd.wait.Committed.IsZero() &&
		rd.chosen.Less(rd.timestamp) {
		r.node.Metrics.Reads.Restarted.Inc()
	}
	if early := r.earlyLocked(rd.timestamp); early > 0 && !rd.momentOnly {
		if rd.term == 0 {
			return r.proveLocked(rd) // which makes the lease longer
		}
		return refuseStep(r.refuse.BeyondLease(rd.pending.Request, rd.timestamp, early))
	}
	wait := r.placeLocked(rd)
	if r.mu.locks.Len() != 0 {
		if step, blocked := r.waitForLocksLocked(rd); blocked {
			return step
		}
	}
	switch {
	case wait == nil:
		return readStep{do: readServe}
	case rd.part != nil && !rd.part.waits():
		return readStep{do: readLeave}
	case r.tooManyReadsLocked():
		return refuseStep(r.refuse.Overloaded(rd.pending.Request, "reads wait for writes in flight"))
	}
	r.mu.reads.waiting++
	wait.waiters = append(wait.waiters, rd)
	r.node.Metrics.Reads.Waited.Inc()
	if r.mu.open != nil && r.mu.open.proposal == wait {
		return readStep{do: readKick}
	}
	return readStep{do: readWait}
}

// chooseLocked chooses the read's timestamp.
func (r *Replica) chooseLocked(rd *read) hlc.Timestamp {
	switch {
	case !rd.latest():
		return rd.at
	case !rd.wait.Settled.IsZero():
		return hlc.Max(rd.wait.Settled, rd.wait.Committed)
	}
	// A version may be of a faster clock than this one: everything acknowledged must be visible. So
	// it is as long as the read has not met all locks, also if it knows of a commit by now: what
	// that commit is below may be acknowledged, and so may one that it has not met, which is
	// applied meanwhile.
	return hlc.Max(hlc.Max(rd.chosen, r.mu.applied.Highest), rd.wait.Committed)
}

// resumeRead goes on with a read whose wait is over: what it waited for is applied.
func (r *Replica) resumeRead(rd *read) {
	if !r.goActive(func() { r.resumed(rd) }) {
		r.endRead(rd, r.refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
	}
}

func (r *Replica) resumed(rd *read) {
	if moved := r.moved(rd); moved != nil {
		r.endRead(rd, moved)
		return
	}
	if !rd.belowPending() && !rd.unplaced {
		// Nothing else at or below its timestamp can have been put in flight since it is in the
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

// refuseRead answers a read that cannot be served any more: what it waited for has an unknown
// outcome.
func (r *Replica) refuseRead(rd *read) {
	r.endRead(rd, r.refuse.NotLeader(rd.pending.Request))
}

// endRead answers a read.
func (r *Replica) endRead(rd *read, response *kvpb.Response) {
	r.answerRead(rd, response)
	r.exit()
}

// answerRead is endRead for a read that does not count as active yet. The read is not used after
// it.
func (r *Replica) answerRead(rd *read, response *kvpb.Response) {
	if rd.part != nil {
		r.node.Metrics.Answered(rd.command, response)
		rd.part.refused(response)
		return
	}
	r.reply(rd.pending, rd.command, response)
}

// serve reads the engine at the read's timestamp and answers.
func (r *Replica) serve(rd *read) {
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
	if !r.goLong(func() {
		began := time.Now()
		r.serveNow(rd)
		r.work.span(began)
	}) {
		r.endRead(rd,
			r.refuse.Overloaded(rd.pending.Request, "reads of many rows are being served by this server"))
	}
}

// views are used again: a View is passed on to the command's function, and so lies on the heap.
var views = sync.Pool{New: func() any { return new(command.View) }}

func (r *Replica) serveNow(rd *read) {
	if rd.pending.Request.TimeoutMicros != 0 && expired(&rd.pending, time.Now()) {
		r.endRead(rd, r.refuse.DeadlineExceeded(rd.pending.Request))
		return
	}
	if rd.pending.Request.Admit {
		r.answerAdmission(rd)
		return
	}
	view := views.Get().(*command.View)
	*view = command.View{
		State: r.state, Vacant: &r.vacant, Descriptor: rd.descriptor, At: rd.timestamp,
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
		r.node.Metrics.Reads.Lease.Inc()
	default:
		r.node.Metrics.Reads.ReadIndex.Inc()
	}
	if rd.closed != nil {
		response.ReadAt = wire.ToTimestamp(rd.timestamp)
	}
	if response.Now == nil || response.Now.Wall == 0 {
		r.node.Tell(response, rd.timestamp)
	}
	r.work.read(response)
	r.endRead(rd, response)
	command.ReleaseRows(response.GetScan().GetRows())
}

// maxRestarts is how often a read of the latest state begins anew because garbage collection
// overtook its timestamp, which takes a collection window that is about as short as the read is
// long.
const maxRestarts = 3

// restart begins a read anew, with a later timestamp.
func (r *Replica) restart(rd *read) {
	rd.restarts++
	r.node.Metrics.Reads.MovedCollected.Inc()
	rd.term = 0
	if rd.lockedReading != &plainReading {
		rd.wait.Settled, rd.wait.Committed = hlc.Timestamp{}, hlc.Timestamp{}
	}
	now, sure := r.node.Clock.Reading()
	if !sure {
		r.endRead(rd, r.refuse.UntrustedClock(rd.pending.Request))
		return
	}
	rd.chosen = hlc.Max(now, rd.session)
	leaseTerm, leased := r.group.Lease()
	r.admit(rd, leaseTerm, leased)
}

// uncertain is up to where things are uncertain for a read.
func (rd *read) uncertain() (u mvcc.Limits) {
	if rd.timestamp.Less(rd.limit) {
		u.Versions = rd.limit
	}
	if rd.timestamp.Less(rd.expiries) {
		u.Expiries = rd.expiries
	}
	return u
}

// asUncertainty says where and when a read met something uncertain; nil if that is not the error.
func asUncertainty(err error) *mvcc.UncertaintyError {
	var u *mvcc.UncertaintyError
	errors.As(err, &u)
	return u
}

// failedRead is the answer to a read that ended in an error.
func (r *Replica) failedRead(rd *read, err error) *kvpb.Response {
	if u := asUncertainty(err); u != nil {
		return r.refuse.Uncertain(rd.pending.Request, rd.timestamp, u.Timestamp, u.Expiry)
	}
	return r.refuse.ReadError(rd.pending.Request, err)
}

// isValue says that a version is there to be read.
func isValue(v mvcc.Version, found bool) bool { return found && v.Kind == mvcc.KindValue }
