package read

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/timing"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// mostClosedWait is the longest wait of a closed read, whatever its client asks for.
const mostClosedWait = 10 * time.Second

// closedCheck is the interval at which a waiting read looks: a timestamp that is closed without a
// log entry wakes no read.
const closedCheck = 20 * time.Millisecond

// startClosed notes the freshness that a read needs which any replica may answer.
func (r *Reader) startClosed(rd *read, q *kvpb.ReplicaRead) {
	wait := min(time.Duration(q.GetWaitMicros())*time.Microsecond, mostClosedWait)
	rd.closed = &closedReading{atLeast: wire.FromTimestamp(q.GetAtLeast()),
		until: r.Node.LockNow().Add(wait), admitted: q.Admission != nil, index: q.Admission.GetIndex()}
	if end := rd.pending.Deadline(); !end.IsZero() && end.Before(rd.closed.until) {
		rd.closed.until = end
	}
}

// leads reports that this replica can answer as a leader does.
func (r *Reader) leads() bool {
	term, leased := r.Group.Lease()
	r.Mu.Lock()
	defer r.Mu.Unlock()
	l := &r.Mu.Leadership
	return leased && l.IsLeader && l.Term == term && l.Serving() && !l.LowDue()
}

// readClosed serves a read at a timestamp that is closed here, or makes it wait for one.
func (r *Reader) readClosed(rd *read) {
	q := rd.pending.Request
	r.Mu.Lock()
	d := r.Descriptor()
	if u := r.UnavailableLocked(); u != nil || q.Generation != d.Generation {
		r.Mu.Unlock()
		if u == nil {
			u = &machine.Unavailable{Stale: d}
		}
		r.endRead(rd, u.Refuse(r.Machine, q))
		return
	}
	closed := r.ClosedLocked()
	var lock *concurrency.Lock
	var ok bool
	if rd.closed.admitted {
		ok = r.placeAdmittedLocked(rd)
	} else {
		lock, ok = r.chooseClosedLocked(rd, closed)
	}
	// INVARIANT: what is applied, and which locks there are, is known for the present descriptor.
	// Descriptors of a merge or a snapshot are published earlier.
	ok = ok && r.DescribedAt() <= r.Mu.Applied.Index
	c := rd.closed
	patience, check := c.until.Sub(r.Node.LockNow()), closedCheck
	if rd.changes != nil {
		ok, patience, check = r.holdChangesLocked(rd, ok, patience)
	}
	if ok {
		rd.descriptor = d
		r.Mu.Unlock()
		if c.admitted {
			r.Node.Metrics.Reads.Admitted.Inc()
		} else {
			r.Node.Metrics.Reads.Closed.Inc()
		}
		r.serve(rd)
		return
	}
	var refusal *kvpb.Response
	switch {
	case patience <= 0 && c.admitted:
		refusal = r.Refuse.NotApplied(q, c.index, r.Mu.Applied.Index)
	case patience <= 0:
		refusal = r.notClosed(q, c.need, closed, lock)
	case r.TooManyReadsLocked():
		refusal = r.Refuse.Overloaded(q, "reads wait for what this replica has not applied, or heard of")
	default:
		r.Mu.WaitingReads++
		rd.pending.Timing.Enter(timing.Proof)
		r.reads.closed = append(r.reads.closed, rd)
		if r.Node.Hooks.LockTime == nil {
			c.timer = r.Node.AfterFunc(min(patience, check), func() { r.lookClosed(rd) })
		}
	}
	r.Mu.Unlock()
	if refusal != nil {
		r.Node.Metrics.Reads.NotClosed.Inc()
		r.endRead(rd, refusal)
	}
}

// chooseClosedLocked chooses the read's timestamp. It returns false if there is none, and the lock
// in the way if a lock is the reason.
func (r *Reader) chooseClosedLocked(rd *read, closed hlc.Timestamp) (
	in *concurrency.Lock, ok bool) {
	c := rd.closed
	c.locked = false
	T := closed
	c.need = hlc.Max(c.atLeast, hlc.Timestamp{Wall: 1})
	if rd.changes != nil {
		c.need = hlc.Max(c.need, rd.changes.quiet.Next())
	}
	if !rd.latest() {
		T, c.need = rd.at, hlc.Max(c.need, rd.at)
	}
	if closed.Less(c.need) {
		return nil, false
	}
	in = r.lowestLockLocked(rd, T)
	if in != nil {
		below := in.Applied.Prepared.Prev()
		if c.locked = !rd.latest() || below.Less(c.need); c.locked {
			return in, false
		}
		T = below
	}
	rd.timestamp = T
	return nil, true
}

// lowestLockLocked returns the lock with the lowest prepared timestamp among those by which a key
// of the read may be written at or below T; nil if there is none.
func (r *Reader) lowestLockLocked(rd *read, T hlc.Timestamp) (lowest *concurrency.Lock) {
	if r.Mu.Locks.Len() == 0 {
		return nil
	}
	look := func(l *concurrency.Lock) bool {
		if l != nil && l.Applied != nil && l.Applied.Writes() && l.Applied.Prepared.LessEq(T) &&
			(lowest == nil || l.Applied.Prepared.Less(lowest.Applied.Prepared)) {
			lowest = l
		}
		return true
	}
	f := rd.command.Footprint(rd.pending.Request)
	for key := range f.Keys {
		look(r.Mu.Locks.Get(machine.Text(key)))
	}
	for start, end := range f.EachSpan {
		r.Mu.Locks.Each(machine.Text(start), machine.Text(end), look)
	}
	return lowest
}

// ClosedAdvancedLocked takes out the reads that may go on: those whose timestamp is closed and, if
// locks were released, those that wait for a lock.
func (r *Reader) ClosedAdvancedLocked(released bool) (ready []*read) {
	if len(r.reads.closed) == 0 {
		return nil
	}
	closed, kept := r.ClosedLocked(), r.reads.closed[:0]
	for _, rd := range r.reads.closed {
		if r.advancedLocked(rd.closed, closed, released) {
			if rd.idleLocked(r.Mu.Applied.Highest) {
				kept = append(kept, rd)
				continue
			}
			ready = append(ready, rd)
			continue
		}
		kept = append(kept, rd)
	}
	clear(r.reads.closed[len(kept):])
	r.reads.closed = kept
	r.Mu.WaitingReads -= len(ready)
	return ready
}

// advancedLocked reports that a read may find what it waits for.
func (r *Reader) advancedLocked(c *closedReading, closed hlc.Timestamp, released bool) bool {
	switch {
	case c.admitted:
		return c.index <= r.Mu.Applied.Index
	case c.locked:
		return released
	}
	return c.need.LessEq(closed)
}

// lookClosed lets a read look whether it may go on, if it still waits.
func (r *Reader) lookClosed(rd *read) {
	r.Mu.Lock()
	i := slices.Index(r.reads.closed, rd)
	if i >= 0 {
		r.reads.closed = slices.Delete(r.reads.closed, i, i+1)
		r.Mu.WaitingReads--
	}
	r.Mu.Unlock()
	if i >= 0 {
		r.ResumeClosed([]*read{rd})
	}
}

// CloseLocked takes out all reads that wait for a read index or for a closed timestamp. The replica
// is being closed.
func (r *Reader) CloseLocked() (waiters []machine.Waiter) {
	for _, rd := range r.reads.drain() {
		waiters = append(waiters, rd)
	}
	for _, rd := range r.reads.closed {
		rd.closed.stop()
		waiters = append(waiters, rd)
	}
	r.Mu.WaitingReads -= len(waiters)
	r.reads.closed = nil
	return waiters
}

// Close refuses the reads that commit wait holds back, when the replica is closed.
func (r *Reader) Close() { r.heldReads.Close() }

// Held returns how many reads commit wait holds back.
func (r *Reader) Held() int { return r.heldReads.Len() }

// RunTimers does the work of timers, for tests in which no timers run (config.Hooks).
func (r *Reader) RunTimers() {
	r.heldReads.ReleasePassed()
	r.Mu.Lock()
	closed := slices.Clone(r.reads.closed)
	r.Mu.Unlock()
	for _, rd := range closed {
		r.lookClosed(rd)
	}
}

// ResumeClosed goes on with reads that have waited.
func (r *Reader) ResumeClosed(ready []*read) {
	for _, rd := range ready {
		rd.closed.stop()
		if !r.GoActive(func() {
			rd.pending.Timing.Enter(timing.Evaluate)
			r.readClosed(rd)
		}) {
			r.endRead(rd, r.Refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
		}
	}
}

// notClosed refuses a read that this replica cannot answer yet. in is the lock in its way, nil if
// no lock is the reason.
func (r *Reader) notClosed(q *kvpb.Request, need, closed hlc.Timestamp, in *concurrency.Lock,
) *kvpb.Response {
	if in == nil {
		return r.Refuse.NotClosed(q, need, closed)
	}
	return r.Refuse.MayBeWritten(q, need, in.Applied.Prepared.Prev(), &kvpb.Conflict{
		Key: []byte(in.Key), Transaction: in.Transaction.ID.Bytes(),
		Keyspace: r.Descriptor().GetKeyspace()})
}
