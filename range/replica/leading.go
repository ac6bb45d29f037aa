package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
)

// LeadershipChanged follows the group. What was in flight has an unknown outcome: another leader
// may have it in its log. Called once more by a leader with the same term, it says that proposals
// may have been dropped. It may run beside Apply.
func (r *Replica) LeadershipChanged(to group.Leadership) {
	var end ending
	r.mu.Lock()
	l := &r.mu.leadership
	l.change(to)
	r.giveUpLocked(&end, outcomeUnknown)
	r.refuseQueueLocked(&end)
	switch {
	case !l.IsLeader:
		r.mu.cache.Reset(hlc.Timestamp{})
	case l.Term == l.ledTerm:
		r.raiseBarrierLocked()
	default:
		// A step of the clock that was not looked at yet counts. If it is a jump, ClockWentForward
		// follows.
		clock := r.node.Clock
		l.begin(clock.Reached(), clock.MaxAhead())
		r.mu.cache.Reset(l.low)
		r.checkServingLocked()
	}
	due := l.barrierDue
	r.mu.Unlock()
	r.finish(&end)
	if due {
		r.kick(true)
	}
}

// ClockWentForward is for a node whose clock was wrong, behind, and is right from now on; it serves
// nothing until all of its replicas know. A leadership won before took its low-water mark from the
// wrong clock, and an earlier leader, whose clock was right, may have served reads above that. One
// that begins at the same time reads the clock with the lock held: it comes before this, and its
// mark is raised, or finds the right time.
func (r *Replica) ClockWentForward() {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := &r.mu.leadership
	if !l.IsLeader {
		return
	}
	clock := r.node.Clock
	l.clockWentForward(clock.Reached(), clock.MaxAhead())
	r.mu.cache.Raise(l.low)
}

// checkServingLocked opens the gate when it may be opened.
func (r *Replica) checkServingLocked() {
	l := &r.mu.leadership
	if !l.mayServe(&r.mu.applied) {
		return
	}
	if l.serve(&r.mu.applied, r.node.Clock.Physical()) {
		r.mu.cache.Reset(l.low)
	} else {
		r.mu.cache.Raise(l.low)
	}
}
