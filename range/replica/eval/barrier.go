package eval

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// RaiseBarrierLocked closes the gate until a proposal that is yet to be made has come back.
func (r *Evaluator) RaiseBarrierLocked() {
	r.Mu.Sequence++
	r.Mu.Leadership.RaiseBarrier(r.Mu.Sequence)
}

// CheckStall gives up proposals that have been on their way for longer than a working group takes.
func (r *Evaluator) CheckStall(now time.Time) {
	var end Ending
	r.Mu.Lock()
	stalled := r.Mu.Leadership.IsLeader && r.stalledLocked(now)
	if stalled {
		r.GiveUpLocked(&end, OutcomeUnknown)
		r.RaiseBarrierLocked()
	}
	r.Mu.Unlock()
	if stalled {
		r.Node.Logger.Warn("proposals are lost or very slow; their outcome is unknown",
			"partition", r.ID, "after", r.Node.StallTimeout)
		r.Finish(&end)
		r.Kick(true)
	}
}

// stalledLocked reports that the oldest proposal has been on its way for too long.
func (r *Evaluator) stalledLocked(now time.Time) bool {
	return len(r.Mu.InFlight) > 0 && now.Sub(r.Mu.InFlight[0].At) > r.Node.StallTimeout
}

// proposeBarrier proposes an entry without effect. Only the running evaluation calls it, so the
// entry comes after everything proposed before.
func (r *Evaluator) proposeBarrier() {
	r.Mu.Lock()
	l := &r.Mu.Leadership
	sequence, successor, due := l.TakeBarrier()
	if !due {
		r.Mu.Unlock()
		return
	}
	term := l.Term
	entry := proposal.Entry{
		Kind: proposal.KindWrite, Proposer: r.Self,
		Sequence: sequence, Base: r.Mu.Base(term, &r.Mu.Applied),
	}
	if successor != 0 && !l.LowDue() {
		entry.Closed = r.ServedLocked()
		if entry.HandsOver = l.HeardAll() && r.Node.ClockTrusted(); entry.HandsOver {
			// the time of the hand-over, for the successor
			entry.Highest = hlc.Timestamp{Wall: r.Node.Clock.Physical()}
		}
	}
	// The barrier counts as in flight, so that its loss is noticed.
	barrier := &machine.Entry{Sequence: entry.Sequence, Term: term}
	barrier.At = time.Now()
	r.Mu.InFlight = append(r.Mu.InFlight, barrier)
	r.Node.Metrics.Writes.Proposals.Inc()
	r.Mu.Unlock()
	if err := r.Group.Propose(term, entry.Encode()); err != nil {
		r.Node.Logger.Debug("barrier not proposed", "partition", r.ID, "error", err)
	}
	if successor != 0 {
		r.Group.TransferLeader(term, successor)
	}
}

// TransferLeader hands the leadership over to another replica, if this one leads. It does not wait.
//
// The leader stops serving, and its last entry closes every timestamp at which it has served a
// read. The successor has that entry before it leads, so it writes above those reads without having
// to know how far the two clocks differ, or how recently this leader was elected. A leader whose
// clock was never believed has served nothing, and closes nothing.
func (r *Evaluator) TransferLeader(to keys.ReplicaID) {
	r.Mu.Lock()
	l := &r.Mu.Leadership
	if !l.IsLeader || r.Mu.Failed != nil || to == r.Self {
		r.Mu.Unlock()
		return
	}
	l.HandOver(to, r.Node.Clock.Physical())
	r.RaiseBarrierLocked()
	r.Mu.Unlock()
	r.Kick(true)
}
