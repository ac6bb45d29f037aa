package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// raiseBarrierLocked closes the gate until a proposal that is yet to be made has come back.
func (r *Replica) raiseBarrierLocked() {
	r.mu.sequence++
	r.mu.leadership.RaiseBarrier(r.mu.sequence)
}

// checkStall gives up proposals that have been on their way for longer than anything takes that
// still works.
func (r *Replica) checkStall(now time.Time) {
	var end ending
	r.mu.Lock()
	stalled := r.mu.leadership.IsLeader && r.stalledLocked(now)
	if stalled {
		r.giveUpLocked(&end, outcomeUnknown)
		r.raiseBarrierLocked()
	}
	r.mu.Unlock()
	if stalled {
		r.node.Logger.Warn("proposals are lost or very slow; their outcome is unknown",
			"partition", r.id, "after", r.node.StallTimeout)
		r.finish(&end)
		r.kick(true)
	}
}

// stalledLocked says that the oldest proposal has been on its way for too long.
func (r *Replica) stalledLocked(now time.Time) bool {
	return len(r.mu.inFlight) > 0 && now.Sub(r.mu.inFlight[0].at) > r.node.StallTimeout
}

// proposeBarrier proposes an entry without effect. The caller is the evaluator, so that it comes
// after everything proposed before.
func (r *Replica) proposeBarrier() {
	r.mu.Lock()
	l := &r.mu.leadership
	sequence, successor, due := l.TakeBarrier()
	if !due {
		r.mu.Unlock()
		return
	}
	term := l.Term
	entry := proposal.Entry{
		Kind: proposal.KindWrite, Proposer: r.self,
		Sequence: sequence, Base: r.mu.base(term, &r.mu.applied),
	}
	if successor != 0 && !l.LowDue() {
		entry.Closed = r.servedLocked()
		if entry.HandsOver = r.node.BelievesClock(); entry.HandsOver {
			// when that was, for the successor
			entry.Highest = hlc.Timestamp{Wall: r.node.Clock.Physical()}
		}
	}
	// It counts as in flight, so that it is noticed when it does not come back.
	barrier := &pendingEntry{sequence: entry.Sequence, term: term, at: time.Now()}
	r.mu.inFlight = append(r.mu.inFlight, barrier)
	r.node.Metrics.Writes.Proposals.Inc()
	r.mu.Unlock()
	if err := r.group.Propose(term, entry.Encode()); err != nil {
		r.node.Logger.Debug("barrier not proposed", "partition", r.id, "error", err)
	}
	if successor != 0 {
		r.group.TransferLeader(term, successor)
	}
}

// TransferLeader hands the leadership over to another replica, if this one leads. It does not wait.
//
// It stops serving, and its last entry closes every timestamp at which it has served a read. Its
// successor has that entry before it leads, so it writes above those reads without having to know
// how far apart the two clocks are, and how recently this leader was elected itself. A leader whose
// clock was never believed has served nothing, and closes nothing.
func (r *Replica) TransferLeader(to keys.ReplicaID) {
	r.mu.Lock()
	l := &r.mu.leadership
	if !l.IsLeader || r.mu.failed != nil || to == r.self {
		r.mu.Unlock()
		return
	}
	l.HandOver(to)
	r.raiseBarrierLocked()
	r.mu.Unlock()
	r.kick(true)
}
