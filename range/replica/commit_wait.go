package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/alarm"
)

// A commit with commit wait is replicated and applied as any other, but no client is told of it
// before every clock of the cluster has passed its timestamp. So whatever begins because of it has
// a later timestamp, on whichever node. That it waits is part of what is replicated, so it does not
// matter which node leads by then:
//
//   - A transaction record says so (txn.Record.CommitWait). Until the time has come the coordinator
//     holds back the answer to the client, and to a client that asks because a lock is in the way.
//     The locks become versions when a client has been told, and so not before.
//   - The versions of a one-phase commit say so each (mvcc.Version.CommitWait): they are there as
//     soon as the entry is applied. A read that has seen one, be it a tombstone, is put aside until
//     the time has come, and then reads again, at the same timestamp and to the same effect. What a
//     write tells of the value before it (compare and swap, whether a key that is deleted existed,
//     how many there were, a lock that returns the value) is held back.
//
// In a keyspace with commit wait every write that is evaluated in one partition is like a one-phase
// commit that asked for it.
//
// Where clocks are bounded by their distance from true time (hlc.KernelBound), only that has passed
// the timestamp when the wait is over, and not every clock. So what waits gets, besides, a
// timestamp that true time cannot have passed when the commit was requested (hlc.Clock.WaitFloor):
// whatever waits later is above. Of a transaction of two phases each Prepare says that it will
// wait.
//
// Blind writes over such a version do not wait, nor does what tells only that something has
// changed.

// commitWaits are what is held back. They are guarded by the replica's lock.
type commitWaits struct {
	// answers are those that wait, bounded by heldMost.
	answers map[*heldAnswer]struct{}
	// reads are those that wait; they count as waiting reads.
	reads map[*heldRead]struct{}
}

// heldAnswer is an answer that waits for the clocks.
type heldAnswer struct {
	answer
	since time.Time
	timer alarm.Timer
}

// heldRead is a read that waits for the clocks.
type heldRead struct {
	rd    *read
	until hlc.Timestamp
	since time.Time
	timer alarm.Timer
}

// heldMost is how many answers a partition holds back at most; more are told that their outcome is
// unknown.
const heldMost = 16 << 10

// passed says that every clock has passed a timestamp, or true time has, if that is what is known
// (hlc.Clock.WaitFloor).
func (n *Node) passed(ts hlc.Timestamp) bool {
	earliest, _ := n.Clock.Bounds()
	return earliest > ts.Wall
}

// SetCommitWait sets whether every write has commit wait, also one that does not ask for it.
func (r *Replica) SetCommitWait(wait bool) { r.commitWait.Store(wait) }

// SetDefaultTTL sets how long a value lives whose write does not say so; 0: it does not expire.
func (r *Replica) SetDefaultTTL(ttl time.Duration) { r.defaultTTL.Store(int64(ttl)) }

func (r *Replica) passed(ts hlc.Timestamp) bool { return r.node.passed(ts) }

// send answers a request, now or when every clock has passed what the answer waits for.
func (r *Replica) send(a *answer) {
	if a.hold.IsZero() || r.passed(a.hold) {
		r.reply(a.pending, a.command, a.response)
		return
	}
	r.mu.Lock()
	if r.closed.Load() || len(r.mu.held.answers) >= heldMost {
		r.mu.Unlock()
		r.reply(a.pending, a.command, r.unknownOutcome(a.pending.Request))
		return
	}
	if r.mu.held.answers == nil {
		r.mu.held.answers = make(map[*heldAnswer]struct{})
	}
	h := &heldAnswer{answer: *a, since: time.Now()}
	r.mu.held.answers[h] = struct{}{}
	if r.node.hooks.lockTime == nil {
		h.timer = r.node.AfterFunc(r.node.until(h.hold), func() { r.releaseHeld(h) })
	}
	r.mu.Unlock()
}

// until is about how long it takes for all clocks to pass a timestamp.
func (n *Node) until(ts hlc.Timestamp) time.Duration {
	earliest, _ := n.Clock.Bounds()
	return max(time.Duration(ts.Wall-earliest), 0) + holdSlack
}

// again is like until, for a caller that was called too early.
func (n *Node) again(ts hlc.Timestamp) time.Duration {
	return max(n.until(ts),
		100*time.Microsecond)
}

// holdSlack is waited for besides: timers measure by another clock.
const holdSlack = time.Microsecond

// releaseHeld answers, if the time has come.
func (r *Replica) releaseHeld(h *heldAnswer) {
	r.mu.Lock()
	if _, still := r.mu.held.answers[h]; !still {
		r.mu.Unlock()
		return
	}
	if !r.passed(h.hold) {
		// Clocks may be set back, and their error may grow.
		if h.timer != nil {
			h.timer.Reset(r.node.again(h.hold))
		}
		r.mu.Unlock()
		return
	}
	delete(r.mu.held.answers, h)
	r.mu.Unlock()
	r.node.Metrics.commitWaits.Observe(since(h.since))
	r.reply(h.pending, h.command, h.response)
}

// holdRead puts a read aside that has seen what is not to be seen yet, if it has.
func (r *Replica) holdRead(rd *read) bool {
	if rd.seen.IsZero() || r.passed(rd.seen) {
		return false
	}
	q := rd.pending.Request
	h := &heldRead{rd: rd, until: rd.seen, since: time.Now()}
	r.mu.Lock()
	switch {
	case r.closed.Load():
		r.mu.Unlock()
		r.endRead(rd, r.goneError(q))
		return true
	case r.tooManyReadsLocked():
		r.mu.Unlock()
		r.endRead(rd, r.overloaded(q, "reads wait for commits that are not to be seen yet"))
		return true
	}
	if r.mu.held.reads == nil {
		r.mu.held.reads = make(map[*heldRead]struct{})
	}
	r.mu.held.reads[h] = struct{}{}
	r.mu.reads.waiting++
	if r.node.hooks.lockTime == nil {
		h.timer = r.node.AfterFunc(r.node.until(h.until), func() { r.resumeHeld(h) })
	}
	r.mu.Unlock()
	r.node.Metrics.readsHeld.Inc()
	return true
}

// resumeHeld reads again, if the time has come. What is at or below the read's timestamp is as it
// was, whichever node leads by now.
func (r *Replica) resumeHeld(h *heldRead) {
	r.mu.Lock()
	if _, still := r.mu.held.reads[h]; !still {
		r.mu.Unlock()
		return
	}
	if !r.passed(h.until) {
		if h.timer != nil {
			h.timer.Reset(r.node.again(h.until))
		}
		r.mu.Unlock()
		return
	}
	delete(r.mu.held.reads, h)
	r.mu.reads.waiting--
	r.mu.Unlock()
	r.node.Metrics.commitWaits.Observe(since(h.since))
	r.serve(h.rd)
}

// endHeldLocked takes out all that is held back: the replica is closed.
func (r *Replica) endHeldLocked(end *ending) {
	for h := range r.mu.held.answers {
		if h.timer != nil {
			h.timer.Stop()
		}
		end.unknown = append(end.unknown, h.answer)
	}
	for h := range r.mu.held.reads {
		if h.timer != nil {
			h.timer.Stop()
		}
		r.mu.reads.waiting--
		end.waiters = append(end.waiters, h.rd)
	}
	r.mu.held = commitWaits{}
}
