package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// pendingEntry is an entry on its way, or being filled by an evaluation.
type pendingEntry struct {
	sequence uint64
	term     uint64
	at       time.Time
	// writes are the pending writes in it, in the order of evaluation. Guarded by Replica.mu until
	// it is applied.
	writes []*proposal.Write
	// lowest is at or below the timestamps of all writes.
	lowest hlc.Timestamp
	// load is what it loads, at lowest; nil if it loads nothing. Guarded as writes are.
	load *pendingLoad
	// answers are sent when it has been applied.
	answers []answer
	// waiters are reads that it holds up.
	waiters []*read
	// records are the transactions whose records are in it.
	records []recordName
	// lets are volatile locks that end when it has been applied.
	lets []*lock
	// sole: nothing else is evaluated before its fate is known. Guarded as writes are.
	sole bool
	// effects: it is proposed even if nothing waits for it.
	effects bool
	// standing: it is no entry, and stands for the freeze of the partition.
	standing bool
	// right is by how much it changes the part that is to split off.
	right proposal.Delta
	groupCommit
}

// onlyOf says that nothing but a client waits for the answers.
func (p *pendingEntry) onlyOf(client uint64) bool {
	for i := range p.answers {
		if a := &p.answers[i]; a.done != nil || a.pending.Client != client {
			return false
		}
	}
	return len(p.waiters) == 0
}

// answer is a response that is ready, and may not be sent yet.
type answer struct {
	pending  config.Pending
	command  *command.Command
	response *kvpb.Response
	// hold, if not zero, is what every clock must have passed before.
	hold hlc.Timestamp
	// done is set instead for a command of this package's own.
	done func(error)
}

// outcome is how what was not applied is answered.
type outcome int

const (
	// notRun: it had no effect and never will.
	notRun outcome = iota
	// outcomeUnknown: it may still take effect.
	outcomeUnknown
)

// ending is what is to be answered when the lock is released.
type ending struct {
	// unknown and refused were not applied; refusedWrites were not even evaluated.
	unknown, refused []answer
	refusedWrites    []write
	waiters          []*read
	// stale, if not nil, is the descriptor because of which all but the unknown are refused.
	stale *clusterpb.Partition
}

// refusal is for what had no effect.
func (end *ending) refusal(r *Replica, q *kvpb.Request) *kvpb.Response {
	if end.stale != nil && q.GetGeneration() != end.stale.GetGeneration() {
		return r.refuse.StaleEpoch(q, end.stale)
	}
	return r.refuse.NotLeader(q)
}

// giveUpLocked forgets everything in flight.
func (r *Replica) giveUpLocked(end *ending, o outcome) {
	r.mu.leadership.EndEpoch()
	for _, p := range r.mu.inFlight {
		if o == outcomeUnknown {
			end.unknown = append(end.unknown, p.answers...)
		} else {
			end.refused = append(end.refused, p.answers...)
		}
		end.waiters = append(end.waiters, p.waiters...)
		r.mu.reads.waiting -= len(p.waiters)
		r.node.Metrics.Writes.Proposals.Dec()
		r.node.Metrics.Writes.PendingWrites.Sub(float64(len(p.writes)))
	}
	clear(r.mu.inFlight)
	r.mu.inFlight = r.mu.inFlight[:0]
	if e := r.mu.open; e != nil {
		// Nothing was proposed, and no goroutine is at work on it.
		end.refused = append(end.refused, e.proposal.answers...)
		if e.batch != nil {
			_ = e.batch.Close()
		}
		r.mu.open = nil
		defer func() { r.mu.building = nil }()
	}
	if b := r.mu.building; b != nil {
		// Its evaluation sees that the epoch is over, and answers its writes.
		end.waiters = append(end.waiters, b.waiters...)
		r.mu.reads.waiting -= len(b.waiters)
		r.node.Metrics.Writes.PendingWrites.Sub(float64(len(b.writes)))
		b.waiters, b.writes = nil, nil
	}
	r.mu.pending.Clear()
	if h := r.mu.holding; h != nil && h.standing {
		end.waiters = append(end.waiters, h.waiters...)
		r.mu.reads.waiting -= len(h.waiters)
	}
	r.mu.splitStats, r.mu.holding = nil, nil
	r.giveUpWaitersLocked(end)
	clear(r.mu.records.proposed)
	r.mu.recent.Reset()
	r.gc.ForgetExpiries()
}

// refuseQueueLocked empties the queue.
func (r *Replica) refuseQueueLocked(end *ending) {
	queued := r.mu.queue.Drain()
	for i := range queued {
		r.attemptEndsLocked(&queued[i])
	}
	end.refusedWrites = append(end.refusedWrites, queued...)
	r.node.Metrics.Writes.Queued.Sub(float64(len(queued)))
}

// finish answers all of it. No lock is held.
func (r *Replica) finish(end *ending) {
	for i := range end.unknown {
		a := &end.unknown[i]
		if a.done != nil {
			a.done(errOutcomeUnknown)
			continue
		}
		r.reply(a.pending, a.command, r.refuse.UnknownOutcome(a.pending.Request))
	}
	for i := range end.refused {
		a := &end.refused[i]
		if a.done != nil {
			a.done(errNotLeader)
			continue
		}
		r.reply(a.pending, a.command, end.refusal(r, a.pending.Request))
	}
	for i := range end.refusedWrites {
		w := &end.refusedWrites[i]
		if w.internal != nil {
			w.internal.done(errNotLeader)
			continue
		}
		r.reply(w.pending, w.command, end.refusal(r, w.pending.Request))
	}
	for _, rd := range end.waiters {
		r.endRead(rd, end.refusal(r, rd.pending.Request))
	}
}
