package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/txn"
)

// LeadershipChanged follows the group. What was in flight has an unknown outcome: another leader may have it in its log.
// Called once more by a leader with the same term, it says that proposals may have been dropped. It may run beside Apply.
func (r *Replica) LeadershipChanged(l group.Leadership) {
	var end ending
	r.mu.Lock()
	r.mu.leadership = l
	r.mu.serving, r.mu.barrier, r.mu.barrierDue, r.mu.successor, r.mu.handingOver = false, 0, false, 0, false
	r.giveUpLocked(&end, outcomeUnknown)
	r.refuseQueueLocked(&end)
	switch {
	case !l.IsLeader:
		r.mu.cache.Reset(hlc.Timestamp{})
	case l.Term == r.mu.ledTerm:
		r.raiseBarrierLocked()
	default:
		r.mu.ledTerm = l.Term
		// Its timestamps start above everything that any earlier leader can have served or written: those came from clocks
		// (hlc.Clock.MaxAhead, which counts the timestamps of commits that wait), and were taken before this moment, since no
		// earlier leader held its lease any more when this one was elected.
		//
		// The timestamps that it gives itself for the first moments are ahead of all clocks, and so are hybrid clocks that
		// have merged them. The next leader, whose clock may be behind this one's, is above those too once this election
		// is longer ago than the two clocks are apart; the steps in beyond cover what it can see when it is not. A leader that
		// hands over on purpose, which can be at once, closes what it has served first (TransferLeader).
		//
		// A step of the clock that nobody has looked at counts. If it is a jump, ClockWentForward follows.
		clock := r.node.Clock
		now := clock.Reached()
		r.mu.hearsSince = now
		r.mu.low = hlc.Timestamp{Wall: now + int64(clock.MaxAhead())}
		r.mu.cache.Reset(r.mu.low)
		r.checkServingLocked()
	}
	due := r.mu.barrierDue
	r.mu.Unlock()
	r.finish(&end)
	if due {
		r.kick(true)
	}
}

// ClockWentForward is for a node whose clock was wrong, behind, and is right from now on; it serves nothing until all of its replicas know. A leadership won before took its
// low-water mark from the wrong clock, and an earlier leader, whose clock was right, may have served reads above that. One that begins at the same
// time reads the clock with the lock held: it comes before this, and its mark is raised, or finds the right time.
func (r *Replica) ClockWentForward() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.mu.leadership.IsLeader {
		return
	}
	clock := r.node.Clock
	now := clock.Reached()
	r.mu.hearsSince = now - int64(txn.Abandoned-electedTime) // as after an election: what was heard is of the wrong clock
	r.mu.low = hlc.Max(r.mu.low, hlc.Timestamp{Wall: now + int64(clock.MaxAhead())})
	r.mu.cache.Raise(r.mu.low)
}

// checkServingLocked opens the gate once what earlier leaders, or reigns, left in the log is applied: when an entry of
// this leadership's term is, all of its predecessors' are.
func (r *Replica) checkServingLocked() {
	if r.mu.handingOver {
		return // what it served now would not be closed
	}
	if r.mu.serving || !r.mu.leadership.IsLeader || r.mu.barrier != 0 || r.mu.applied.term != r.mu.leadership.Term {
		return
	}
	if r.mu.firstTerm == r.mu.leadership.Term {
		// The log begins with this leadership: no earlier one has committed an entry, so none has served anything, and
		// nothing is to be above. Otherwise the first writes of a new keyspace would carry timestamps of the future.
		// Only the first time: after a barrier this same leadership has served.
		r.mu.low, r.mu.firstTerm = hlc.Timestamp{Wall: r.node.Clock.Physical()}, 0
		r.mu.cache.Reset(r.mu.low)
	}
	r.mu.low = hlc.Max(r.mu.low, beyond(r.mu.applied.highest))
	r.mu.cache.Raise(r.mu.low)
	r.mu.serving = true
	// A leader that dies takes along the time of the latest heartbeats, and clients found no leader
	// to send them to, until now. One that hands over has put all that it has heard into the log,
	// and is replaced at once: no client is silent for a second longer because of that.
	r.mu.hearsSince = r.node.Clock.Physical() - int64(txn.Abandoned-electedTime)
	h := &r.mu.handedOver
	if h.term != 0 && h.term == r.mu.applied.commandTerm && r.node.Clock.Physical()-h.at < int64(handOverTime) {
		r.mu.hearsSince = 0
	}
}

// electedTime is what a leader that begins to serve gives the clients of transactions to be heard
// by it. A client that finds no leader to send a heartbeat to goes on trying, and
// sends one a second all the while; so one that lives is heard a moment after this leader serves, and there is a second left for one that is slow.
const electedTime = 2 * time.Second

// handedOver is when a leader of a term has handed over, in nanoseconds since the epoch by its clock: the entry by which it closes what it
// has served tells. It may be applied here much later.
type handedOver struct {
	term uint64
	at   int64
}

// handOverTime is the longest time between a leader's last entry and when its successor serves that transactions' clients need not be given
// time for: they send a heartbeat every second, and count as silent after three, so there is a
// second left for clocks that differ.
const handOverTime = time.Second

// beyond is above every timestamp of the same wall time: reads and writes of a leader whose hybrid clock is ahead of all
// physical ones differ in the logical counter only.
func beyond(t hlc.Timestamp) hlc.Timestamp {
	if t.IsZero() {
		return t
	}
	return hlc.Timestamp{Wall: t.Wall + 1}
}

// raiseBarrierLocked closes the gate until it is known what became of proposals that were given up in this term: the log
// keeps the order of proposals, so when the barrier has come back, they have come back before it, or never will.
func (r *Replica) raiseBarrierLocked() {
	r.mu.serving = false
	r.mu.sequence++
	r.mu.barrier, r.mu.barrierDue = r.mu.sequence, true
}

// checkStall gives up proposals that have been on their way for longer than anything takes that still works.
func (r *Replica) checkStall(now time.Time) {
	var end ending
	r.mu.Lock()
	stalled := r.mu.leadership.IsLeader && len(r.mu.inFlight) > 0 && now.Sub(r.mu.inFlight[0].at) > r.node.StallTimeout
	if stalled {
		r.giveUpLocked(&end, outcomeUnknown)
		r.raiseBarrierLocked()
	}
	r.mu.Unlock()
	if stalled {
		r.node.Logger.Warn("proposals are lost or very slow; their outcome is unknown", "partition", r.id, "after", r.node.StallTimeout)
		r.finish(&end)
		r.kick(true)
	}
}

// proposeBarrier proposes an entry without effect. The caller is the evaluator, so that it comes after everything proposed before.
func (r *Replica) proposeBarrier() {
	r.mu.Lock()
	if !r.mu.barrierDue {
		r.mu.Unlock()
		return
	}
	r.mu.barrierDue = false
	term, successor := r.mu.leadership.Term, r.mu.successor
	r.mu.successor = 0
	p := proposal.Entry{
		Kind: proposal.KindWrite, Proposer: r.self, Sequence: r.mu.barrier, Base: r.baseLocked(),
	}
	if successor != 0 {
		p.Closed = r.mu.cache.Max()
		p.Highest = hlc.Timestamp{Wall: r.node.Clock.Physical()} // when that was, for the successor
	}
	// It counts as in flight, so that it is noticed when it does not come back.
	r.mu.inFlight = append(r.mu.inFlight, &pendingEntry{sequence: p.Sequence, term: term, at: time.Now()})
	r.node.Metrics.proposals.Inc()
	r.mu.Unlock()
	if err := r.group.Propose(term, p.Encode()); err != nil {
		r.node.Logger.Debug("barrier not proposed", "partition", r.id, "error", err)
	}
	if successor != 0 {
		r.group.TransferLeader(term, successor)
	}
}

// TransferLeader hands the leadership over to another replica, if this one leads. It does not wait.
//
// It stops serving, and its last entry closes every timestamp at which it has served a read. Its successor has that entry
// before it leads, so it writes above those reads without having to know how far apart the two clocks are, and how recently
// this leader was elected itself.
func (r *Replica) TransferLeader(to keys.ReplicaID) {
	r.mu.Lock()
	if !r.mu.leadership.IsLeader || r.mu.failed != nil || to == r.self {
		r.mu.Unlock()
		return
	}
	r.mu.successor, r.mu.handingOver = to, true
	r.raiseBarrierLocked()
	r.mu.Unlock()
	r.kick(true)
}

// baseLocked is the sequence that the next proposal builds on.
func (r *Replica) baseLocked() uint64 {
	if n := len(r.mu.inFlight); n > 0 {
		return r.mu.inFlight[n-1].sequence
	}
	if r.mu.applied.commandTerm == r.mu.leadership.Term {
		return r.mu.applied.sequence
	}
	return 0
}
