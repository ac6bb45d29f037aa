package eval

import (
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// outcome says what is known of a write that was not applied.
type outcome int

const (
	// NotRun: the write had no effect and never will.
	NotRun outcome = iota
	// OutcomeUnknown: the write may still take effect.
	OutcomeUnknown
)

// Ending collects what is to be answered when the lock is released.
type Ending struct {
	// unknown and refused are answers of writes that were not applied; refusedWrites were not even
	// evaluated.
	unknown, refused []machine.Answer
	refusedWrites    []write
	Waiters          []machine.Waiter
	// Stale, if not nil, is the new descriptor because of which all but the unknown are refused.
	Stale *clusterpb.Partition
}

// refusal returns the response to a request that had no effect.
func (end *Ending) refusal(refuse *refusal.Refuser, q *kvpb.Request) *kvpb.Response {
	if end.Stale != nil && q.GetGeneration() != end.Stale.GetGeneration() {
		return refuse.StaleEpoch(q, end.Stale)
	}
	return refuse.NotLeader(q)
}

// GiveUpLocked gives up everything in flight.
func (r *Evaluator) GiveUpLocked(end *Ending, o outcome) {
	r.Mu.Leadership.EndEpoch()
	for _, p := range r.Mu.InFlight {
		if o == OutcomeUnknown {
			end.unknown = append(end.unknown, p.Answers...)
		} else {
			end.refused = append(end.refused, p.Answers...)
		}
		end.Waiters = append(end.Waiters, p.Waiters...)
		r.Mu.WaitingReads -= len(p.Waiters)
		r.Node.Metrics.Writes.Proposals.Dec()
		r.Node.Metrics.Writes.PendingWrites.Sub(float64(len(p.Writes)))
	}
	clear(r.Mu.InFlight)
	r.Mu.InFlight = r.Mu.InFlight[:0]
	if e := r.open; e != nil {
		// Nothing of it was proposed, and no goroutine works on it.
		end.refused = append(end.refused, e.proposal.Answers...)
		if e.batch != nil {
			_ = e.batch.Close()
		}
		r.open = nil
		defer func() { r.Mu.Building = nil }()
	}
	if b := r.Mu.Building; b != nil {
		// The evaluation that fills it sees that the epoch is over, and answers its writes.
		end.Waiters = append(end.Waiters, b.Waiters...)
		r.Mu.WaitingReads -= len(b.Waiters)
		r.Node.Metrics.Writes.PendingWrites.Sub(float64(len(b.Writes)))
		b.Waiters, b.Writes = nil, nil
	}
	r.Mu.Pending.Clear()
	if h := r.Mu.Holding; h != nil && h.Standing {
		end.Waiters = append(end.Waiters, h.Waiters...)
		r.Mu.WaitingReads -= len(h.Waiters)
	}
	r.splitStats, r.Mu.Holding = nil, nil
	r.giveUpWaitersLocked(end)
	clear(r.records.proposed)
	r.recent.Reset()
	r.garbage.ForgetExpiries()
}

// RefuseQueueLocked empties the queue.
func (r *Evaluator) RefuseQueueLocked(end *Ending) {
	queued := r.queue.Drain()
	for i := range queued {
		r.attemptEndsLocked(&queued[i])
	}
	end.refusedWrites = append(end.refusedWrites, queued...)
	r.Node.Metrics.Writes.Queued.Sub(float64(len(queued)))
}

// Finish answers all that was collected. The caller holds no lock.
func (r *Evaluator) Finish(end *Ending) {
	for i := range end.unknown {
		a := &end.unknown[i]
		if a.Done != nil {
			a.Done(ErrOutcomeUnknown)
			continue
		}
		r.Reply(a.Pending, a.Command, r.Refuse.UnknownOutcome(a.Pending.Request))
	}
	for i := range end.refused {
		a := &end.refused[i]
		if a.Done != nil {
			a.Done(ErrNotLeader)
			continue
		}
		r.Reply(a.Pending, a.Command, end.refusal(&r.Refuse, a.Pending.Request))
	}
	for i := range end.refusedWrites {
		w := &end.refusedWrites[i]
		if w.internal != nil {
			w.internal.done(ErrNotLeader)
			continue
		}
		r.Reply(w.pending, w.command, end.refusal(&r.Refuse, w.pending.Request))
	}
	for _, w := range end.Waiters {
		w.Refuse(end.refusal(&r.Refuse, w.Asked()))
	}
}

// giveUpWaitersLocked refuses all requests that wait for transactions, and forgets which locks are
// in flight.
func (r *Evaluator) giveUpWaitersLocked(end *Ending) {
	writes, reads := r.Mu.Locks.GiveUp()
	for _, w := range writes {
		end.refusedWrites = append(end.refusedWrites, *writeOf(w))
	}
	for _, rd := range reads {
		end.Waiters = append(end.Waiters, rd.Element.(machine.Waiter))
	}
}
