package read

import (
	"strings"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// detail gives the read a lockedReading of its own.
func (rd *read) detail() {
	if rd.lockedReading == &plainReading {
		rd.lockedReading = new(lockedReading)
	}
}

// checkContext checks the context of a read.
func (rd *read) checkContext(c *kvpb.ReadContext) *request.Problem {
	own, err := txn.ParseOptionalID(c.Transaction)
	if err != nil {
		return request.Invalid("a read's context: %v", err)
	}
	if l := c.Leadership; l != nil && l.Term == 0 {
		return request.Invalid("a read's context names a leadership without a term")
	}
	rd.detail()
	rd.context, rd.under = c, c.Leadership
	rd.wait.Transaction, rd.wait.Begun, rd.movable = own, wire.FromTimestamp(c.Begun), c.Movable
	rd.uncertainUntil = wire.FromTimestamp(c.UncertainUntil)
	rd.observed = wire.FromTimestamp(c.Observed)
	return nil
}

// latest reports that the request names no timestamp.
func (rd *read) latest() bool { return rd.at.IsZero() }

// waitForLocksLocked makes a placed read wait for the transactions in its way. It returns false if
// there are none.
func (r *Reader) waitForLocksLocked(rd *read) (step readStep, blocked bool) {
	rd.detail()
	w := &rd.wait
	w.Latest, w.Uncertain = rd.latest(), rd.uncertainUntil
	w.Timestamp, w.UncertainUntil = rd.timestamp, rd.uncertain().Versions
	b := r.Mu.Locks.Blockers(w)
	lookForBlockers(rd, &b)
	switch older := b.Yields(); {
	case len(b.Locks) == 0:
		return step, false
	case older != nil:
		r.Conflicts()
		return refuseStep(command.LockedSinceRead(r.ID, rd.pending.Request, []byte(older.Key),
			older.Transaction.ID)), true
	case rd.part != nil && !rd.part.waits():
		return readStep{do: readLeave}, true
	case r.TooManyReadsLocked():
		return refuseStep(r.Refuse.Overloaded(rd.pending.Request,
			"reads wait for transactions' locks")), true
	}
	w.Element, w.Deadline = rd, rd.pending.Deadline()
	step = readStep{do: readWait, work: new(concurrency.Work)}
	if t := rd.pending.Timing; t != nil {
		t.Enter(timing.Lock)
		t.Block(timing.Blocked{Key: strings.Clone(b.Locks[0].Key),
			Transaction: b.Locks[0].Transaction.ID.String()})
	}
	r.Mu.Locks.WaitForAll(&b, r.Node.LockNow(), step.work)
	return step, true
}

// lookForBlockers looks for locks on the keys of a read.
func lookForBlockers(rd *read, b *concurrency.Blockers) {
	f := rd.command.Footprint(rd.pending.Request)
	for key := range f.Keys {
		if !b.Key(key) {
			return
		}
	}
	for start, end := range f.EachSpan {
		if !b.Span(start, end) {
			return
		}
	}
}

// ResumeUnlocked looks again for locks, for a read that has waited for transactions.
func (rd *read) ResumeUnlocked() {
	r := rd.r
	if !r.GoActive(func() {
		rd.pending.Timing.Enter(timing.Evaluate)
		if rd.latest() && rd.wait.Settled.Less(rd.wait.Committed) {
			r.Node.Metrics.Reads.MovedCommit.Inc()
		}
		r.registerAgain(rd)
	}) {
		r.endRead(rd, r.Refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
	}
}

// maxMoves bounds how often the server itself moves a read to a later timestamp.
const maxMoves = 5

// move repeats a read at the timestamp of an uncertain version, if the client allows it.
func (r *Reader) move(rd *read, at hlc.Timestamp) bool {
	if !rd.movable || rd.latest() || rd.restarts >= maxMoves {
		return false
	}
	rd.restarts++
	rd.term = 0
	rd.at = at
	r.Node.Metrics.Reads.MovedUncertain.Inc()
	leaseTerm, leased := r.Group.Lease()
	r.admit(rd, leaseTerm, leased)
	return true
}

// moveLatest restarts a read of the latest state above the expiries that an earlier leader's reads
// may have been above; false if it does not.
func (r *Reader) moveLatest(rd *read, u *mvcc.UncertaintyError) bool {
	if !u.Expiry || !rd.latest() || rd.restarts >= maxMoves {
		return false
	}
	rd.restarts++
	rd.term = 0
	if rd.lockedReading != &plainReading {
		rd.wait.Settled, rd.wait.Committed = hlc.Timestamp{}, hlc.Timestamp{}
	}
	rd.chosen = hlc.Max(rd.chosen, rd.expiries)
	r.Node.Metrics.Reads.MovedUncertain.Inc()
	leaseTerm, leased := r.Group.Lease()
	r.admit(rd, leaseTerm, leased)
	return true
}
