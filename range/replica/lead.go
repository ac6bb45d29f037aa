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
	// INVARIANT: before any message leaves that says so: this replica affirms no more that it leads.
	r.mu.closing.Awake()
	l := &r.mu.leadership
	l.Change(to)
	r.giveUpLocked(&end, outcomeUnknown)
	r.refuseQueueLocked(&end)
	switch {
	case !l.IsLeader:
		r.mu.cache.Reset(hlc.Timestamp{})
	case l.LedBefore():
		r.raiseBarrierLocked()
	default:
		clock := r.node.Clock
		l.Begin(clock.Physical())
		r.mu.closing.Begin()
		if r.node.BelievesClock() {
			// A step of the clock that was not looked at yet counts. If it is a jump, ClockWentForward
			// follows.
			l.TakeLow(clock.Reached(), clock.MaxAhead())
		}
		r.mu.cache.Reset(l.Low())
		r.checkServingLocked()
	}
	due := l.BarrierDue()
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
	l.ClockWentForward(clock.Reached(), clock.MaxAhead())
	r.mu.cache.Raise(l.Low())
}

// ClockTrusted is for a node whose clock is believed from now on: what it was elected to lead
// meanwhile takes its low-water mark, and may serve clients.
func (r *Replica) ClockTrusted() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lowDueLocked()
}

// lowDueLocked says whether this leadership must not read or write for a client yet. It takes the
// low-water mark if that is due and the clock is believed by now: what hears of that late, or
// never, because it was elected or opened meanwhile, is asked by its first request.
func (r *Replica) lowDueLocked() bool {
	l := &r.mu.leadership
	if !l.LowDue() || !l.IsLeader || !r.node.BelievesClock() {
		return l.LowDue()
	}
	clock := r.node.Clock
	l.TakeLateLow(clock.Reached(), clock.MaxAhead(), clock.Physical())
	r.mu.cache.Raise(l.Low())
	return false
}

// checkServingLocked opens the gate when it may be opened.
func (r *Replica) checkServingLocked() {
	l := &r.mu.leadership
	if !l.MayServe(&r.mu.applied) {
		return
	}
	if l.Serve(&r.mu.applied, r.node.Clock.Physical()) {
		r.mu.cache.Reset(l.Low())
	} else {
		r.mu.cache.Raise(l.Low())
	}
	r.holdLocked()
}
