package replica

import (
	"slices"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/alarm"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Reads that any replica answers, from what it has applied.
//
// A read at a timestamp T that is closed here (closing.go) needs no leader. Whatever is ever
// written at or below T, by whichever leader, is applied here, or has a lock here that was prepared
// at or below T: then its transaction may commit at or below T, and the read does not pass.
//
// INVARIANT: what is closed, and which locks there are, is looked at under the lock under which
// both are published, and the engine is read after that. An entry that is applied in between writes
// above T, or releases a lock that was prepared above T.
//
// INVARIANT: what is closed is not above the clock of the leader that closed it, less the lag, so
// versions with commit wait at or below T may be seen as soon as T has passed on all clocks; reads
// that see one wait for that like those of a leader.

// Nor does it need one at a timestamp at which a leader has taken it in: see admission.go.

// closedReading is what is known of a read that any replica may answer.
type closedReading struct {
	// atLeast is the lowest timestamp at which it may be read.
	atLeast hlc.Timestamp
	// until is how long it waits for what is not closed, or locked.
	until time.Time
	timer alarm.Timer
	// need is what it waits to be closed; locked: it waits for a lock that is in its way.
	need   hlc.Timestamp
	locked bool
	// admitted: a leader has taken it in, and what it needs is that the log is applied up to index
	// (admission.go).
	admitted bool
	index    uint64
}

func (c *closedReading) stop() {
	if c.timer != nil {
		c.timer.Stop()
	}
}

// mostClosedWait is the longest wait of such a read, whatever its client asks for.
const mostClosedWait = 10 * time.Second

// closedCheck is how often a read that waits looks: what is closed beside the log tells none.
const closedCheck = 20 * time.Millisecond

// NoteClosed takes what a leader has closed beside the log: nothing at or below the timestamp is
// written or locked behind the index, by whichever leader. What lies further ahead of this server's
// clock than clocks are apart is ignored: the sender's is wrong.
func (r *Replica) NoteClosed(closed hlc.Timestamp, index uint64) {
	clock := r.node.Clock
	if closed.Wall-clock.Physical() > int64(clock.MaxOffset()) {
		return
	}
	r.mu.Lock()
	r.mu.closing.Note(closed, index, r.mu.applied.Index)
	r.mu.Unlock()
	// Reads that wait look by themselves: the caller may hold locks.
}

// Closed is the timestamp that is closed here: all that is ever written at or below it is applied,
// or locked.
func (r *Replica) Closed() hlc.Timestamp {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closedLocked()
}

func (r *Replica) closedLocked() hlc.Timestamp {
	return hlc.Max(r.mu.applied.Closed, r.mu.closing.Closed(r.mu.applied.Index))
}

// startClosed notes how fresh a read has to be that any replica may answer.
func (r *Replica) startClosed(rd *read, q *kvpb.ReplicaRead) {
	wait := min(time.Duration(q.GetWaitMicros())*time.Microsecond, mostClosedWait)
	rd.closed = &closedReading{atLeast: wire.FromTimestamp(q.GetAtLeast()),
		until: r.node.LockNow().Add(wait), admitted: q.Admission != nil, index: q.Admission.GetIndex()}
	if end := deadline(&rd.pending); !end.IsZero() && end.Before(rd.closed.until) {
		rd.closed.until = end
	}
}

// leads says that this replica can answer as a leader does.
func (r *Replica) leads() bool {
	term, leased := r.group.Lease()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.mu.leadership
	return leased && l.IsLeader && l.Term == term && l.Serving() && !l.LowDue()
}

// readClosed serves a read at a timestamp that is closed here, or has it wait for that.
func (r *Replica) readClosed(rd *read) {
	q := rd.pending.Request
	r.mu.Lock()
	d := r.Descriptor()
	if u := r.unavailableLocked(); u != nil || q.Generation != d.Generation {
		r.mu.Unlock()
		if u == nil {
			u = &unavailable{stale: d}
		}
		r.endRead(rd, u.refuse(r, q))
		return
	}
	closed := r.closedLocked()
	var lock *lock
	var ok bool
	if rd.closed.admitted {
		ok = r.placeAdmittedLocked(rd)
	} else {
		lock, ok = r.chooseClosedLocked(rd, closed)
	}
	// INVARIANT: what is applied, and which locks there are, is known as of the descriptor. That of a
	// merge or a snapshot is published before.
	ok = ok && r.descriptorAt.Load() <= r.mu.applied.Index
	c := rd.closed
	patience, check := c.until.Sub(r.node.LockNow()), closedCheck
	if rd.changes != nil {
		ok, patience, check = r.holdChangesLocked(rd, ok, patience)
	}
	if ok {
		rd.descriptor = d
		r.mu.Unlock()
		if c.admitted {
			r.node.Metrics.Reads.Admitted.Inc()
		} else {
			r.node.Metrics.Reads.Closed.Inc()
		}
		r.serve(rd)
		return
	}
	var refusal *kvpb.Response
	switch {
	case patience <= 0 && c.admitted:
		refusal = r.refuse.NotApplied(q, c.index, r.mu.applied.Index)
	case patience <= 0:
		refusal = r.notClosed(q, c.need, closed, lock)
	case r.tooManyReadsLocked():
		refusal = r.refuse.Overloaded(q, "reads wait for what this replica has not applied, or heard of")
	default:
		r.mu.reads.waiting++
		r.mu.reads.closed = append(r.mu.reads.closed, rd)
		if r.node.Hooks.LockTime == nil {
			c.timer = r.node.AfterFunc(min(patience, check), func() { r.lookClosed(rd) })
		}
	}
	r.mu.Unlock()
	if refusal != nil {
		r.node.Metrics.Reads.NotClosed.Inc()
		r.endRead(rd, refusal)
	}
}

// chooseClosedLocked chooses the read's timestamp. It returns false if there is none, and the lock
// that is in the way, if it is one.
func (r *Replica) chooseClosedLocked(rd *read, closed hlc.Timestamp) (in *lock, ok bool) {
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

// lowestLockLocked is the lock that was prepared first of those by which a key of the read may be
// written at or below T; nil if there is none.
func (r *Replica) lowestLockLocked(rd *read, T hlc.Timestamp) (lowest *lock) {
	if r.mu.locks.Len() == 0 {
		return nil
	}
	look := func(l *lock) bool {
		if l != nil && l.Applied != nil && l.Applied.Writes() && l.Applied.Prepared.LessEq(T) &&
			(lowest == nil || l.Applied.Prepared.Less(lowest.Applied.Prepared)) {
			lowest = l
		}
		return true
	}
	f := rd.command.Footprint(rd.pending.Request)
	for key := range f.Keys {
		look(r.mu.locks.Get(text(key)))
	}
	for start, end := range f.EachSpan {
		r.mu.locks.Each(text(start), text(end), look)
	}
	return lowest
}

// closedAdvancedLocked takes out the reads that may go on: what they need is closed, or, if locks
// were released, they wait for one.
func (r *Replica) closedAdvancedLocked(released bool) (ready []*read) {
	if len(r.mu.reads.closed) == 0 {
		return nil
	}
	closed, kept := r.closedLocked(), r.mu.reads.closed[:0]
	for _, rd := range r.mu.reads.closed {
		if r.advancedLocked(rd.closed, closed, released) {
			if rd.idleLocked(r.mu.applied.Highest) {
				kept = append(kept, rd)
				continue
			}
			ready = append(ready, rd)
			continue
		}
		kept = append(kept, rd)
	}
	clear(r.mu.reads.closed[len(kept):])
	r.mu.reads.closed = kept
	r.mu.reads.waiting -= len(ready)
	return ready
}

// advancedLocked says that what a read waits for has come, or may have.
func (r *Replica) advancedLocked(c *closedReading, closed hlc.Timestamp, released bool) bool {
	switch {
	case c.admitted:
		return c.index <= r.mu.applied.Index
	case c.locked:
		return released
	}
	return c.need.LessEq(closed)
}

// lookClosed has one look whether it may go on, if it still waits.
func (r *Replica) lookClosed(rd *read) {
	r.mu.Lock()
	i := slices.Index(r.mu.reads.closed, rd)
	if i >= 0 {
		r.mu.reads.closed = slices.Delete(r.mu.reads.closed, i, i+1)
		r.mu.reads.waiting--
	}
	r.mu.Unlock()
	if i >= 0 {
		r.resumeClosed([]*read{rd})
	}
}

// endClosedLocked takes out all that wait: the replica is closed.
func (r *Replica) endClosedLocked(end *ending) {
	for _, rd := range r.mu.reads.closed {
		rd.closed.stop()
		end.waiters = append(end.waiters, rd)
	}
	r.mu.reads.waiting -= len(r.mu.reads.closed)
	r.mu.reads.closed = nil
}

// resumeClosed goes on with reads that have waited.
func (r *Replica) resumeClosed(ready []*read) {
	for _, rd := range ready {
		rd.closed.stop()
		if !r.goActive(func() { r.readClosed(rd) }) {
			r.endRead(rd, r.refuse.Overloaded(rd.pending.Request, "reads are being served by this server"))
		}
	}
}

// notClosed refuses a read that this replica cannot answer yet. in is the lock in its way, if it is
// one.
func (r *Replica) notClosed(q *kvpb.Request, need, closed hlc.Timestamp, in *lock) *kvpb.Response {
	if in == nil {
		return r.refuse.NotClosed(q, need, closed)
	}
	return r.refuse.MayBeWritten(q, need, in.Applied.Prepared.Prev(), &kvpb.Conflict{
		Key: []byte(in.Key), Transaction: in.Transaction.ID.Bytes(),
		Keyspace: r.Descriptor().GetKeyspace()})
}
