package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
)

// LeadershipChanged follows the group. What was in flight has an unknown outcome: another leader
// may have it in its log. Called once more by a leader with the same term, it says that proposals
// may have been dropped. It may run beside Apply.
func (r *Replica) LeadershipChanged(to group.Leadership) {
	var end eval.Ending
	r.m.Mu.Lock()
	// INVARIANT: before any message leaves that says so: this replica affirms no more that it leads.
	r.m.Mu.Closing.Awake()
	l := &r.m.Mu.Leadership
	l.Change(to)
	r.eval.GiveUpLocked(&end, eval.OutcomeUnknown)
	r.eval.RefuseQueueLocked(&end)
	switch {
	case !l.IsLeader:
		r.m.Mu.Cache.Reset(hlc.Timestamp{})
	case l.LedBefore():
		r.eval.RaiseBarrierLocked()
	default:
		clock := r.node.Clock
		l.Begin(clock.Physical())
		r.m.Mu.Closing.Begin()
		if r.node.BelievesClock() {
			// A step of the clock that was not looked at yet counts. If it is a jump, ClockWentForward
			// follows.
			l.TakeLow(clock.Reached(), clock.MaxAhead())
		}
		r.m.Mu.Cache.Reset(l.Low())
		r.m.CheckServingLocked()
	}
	due := l.BarrierDue()
	r.m.Mu.Unlock()
	r.eval.Finish(&end)
	if due {
		r.eval.Kick(true)
	}
}

// ClockWentForward is for a node whose clock was wrong, behind, and is right from now on; it serves
// nothing until all of its replicas know. A leadership won before took its low-water mark from the
// wrong clock, and an earlier leader, whose clock was right, may have served reads above that. One
// that begins at the same time reads the clock with the lock held: it comes before this, and its
// mark is raised, or finds the right time.
func (r *Replica) ClockWentForward() {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	l := &r.m.Mu.Leadership
	if !l.IsLeader {
		return
	}
	clock := r.node.Clock
	l.ClockWentForward(clock.Reached(), clock.MaxAhead())
	r.m.Mu.Cache.Raise(l.Low())
}

// ClockTrusted is for a node whose clock is believed from now on: what it was elected to lead
// meanwhile takes its low-water mark, and may serve clients.
func (r *Replica) ClockTrusted() {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	r.m.LowDueLocked()
}
