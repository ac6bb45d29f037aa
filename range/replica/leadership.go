package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
)

// LeadershipChanged takes a change of leadership from the group. The outcome of all that was in
// flight is unknown: another leader may have it in its log. A second call with the same term tells
// a leader that proposals may have been dropped. It may run concurrently with Apply.
func (r *Replica) LeadershipChanged(to group.Leadership) {
	var end eval.Ending
	r.m.Mu.Lock()
	// INVARIANT: this comes before any message that tells of the change, so that this replica no
	// longer affirms its leadership.
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
		if r.node.ClockTrusted() {
			// A step of the clock that was not examined yet counts. If the step is a jump,
			// ClockWentForward follows.
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

// ClockWentForward is called on a node whose clock was behind, and is right from now on. The node
// serves nothing until all of its replicas were called. A leadership won before took its low-water
// mark from the wrong clock, and an earlier leader, whose clock was right, may have served reads
// above that mark. A leadership that begins at the same time reads the clock with the lock held:
// either it begins before this call, which raises its mark, or it reads the right time.
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

// ClockTrusted is called on a node whose clock is believed from now on. Leaderships that began
// meanwhile take their low-water marks, and may serve clients.
func (r *Replica) ClockTrusted() {
	r.m.Mu.Lock()
	defer r.m.Mu.Unlock()
	r.m.LowDueLocked()
}
