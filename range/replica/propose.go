package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// propose proposes what was evaluated, if there is anything.
func (e *evaluation) propose() {
	r, p := e.r, e.proposal
	e.proposal, e.slab = nil, nil
	if e.batch != nil {
		defer func() {
			_ = e.batch.Close()
			e.batch = nil
		}()
	}
	entry := e.internal
	e.internal = proposal.Entry{}
	entry.Kind, entry.Proposer, entry.Sequence = e.kind, r.self, p.sequence
	entry.Highest, entry.Delta = hlc.Max(entry.Highest, e.highest), e.delta
	if e.batch != nil && !e.batch.Empty() {
		entry.Batch = e.batch.Repr()
	}
	p.at = time.Now()
	closable, term := r.closable()
	var end ending
	r.mu.Lock()
	r.mu.building = nil
	if len(e.again) > 0 {
		if r.mu.leadership.Is(e.epoch) && !e.over {
			r.mu.queue.PushFront(e.again)
			r.node.Metrics.Writes.Queued.Add(float64(len(e.again)))
		} else {
			end.refusedWrites = append(end.refusedWrites, e.again...)
		}
		clear(e.again)
		e.again = e.again[:0]
	}
	switch {
	case e.over || !r.mu.leadership.Is(e.epoch):
		// Nothing was proposed, so nothing can come of it.
		end.refused, end.waiters = p.answers, p.waiters
		r.mu.reads.waiting -= len(p.waiters)
		if r.mu.leadership.Is(e.epoch) {
			// Its writes are on top of those that are pending; what lies below goes with them.
			r.abandonLocked(&end, p)
		}
		r.mu.Unlock()
		r.finish(&end)
		return
	case len(p.answers) == 0 && len(p.writes) == 0 && !p.effects:
		end.waiters = p.waiters
		r.mu.reads.waiting -= len(p.waiters)
		r.mu.Unlock()
		r.finish(&end)
		return
	}
	entry.Base = r.mu.base(e.epoch.Term, &r.mu.applied)
	entry.Closed = hlc.Max(entry.Closed, r.promiseLocked(closable, term))
	r.mu.inFlight = append(r.mu.inFlight, p)
	// What is evaluated next, and what others wait for, is not to wait for the rest of a pass.
	pass := e.pass
	e.pass = nil
	if pass != nil {
		next := r.mu.queue.Len() > 0 && len(r.mu.inFlight) < r.node.MaxInFlight
		if next || !p.onlyOf(pass.Client()) {
			pass = nil
		}
	}
	r.mu.Unlock()

	m := &r.node.Metrics.Writes
	m.Proposals.Inc()
	m.EntryWrites.Observe(float64(len(p.answers)))
	data := entry.Encode()
	m.EntryBytes.Observe(float64(len(data)))
	var err error
	switch {
	case e.change != nil:
		err = r.group.ProposeChange(e.epoch.Term, data, *e.change)
	case pass != nil:
		err = pass.Propose(e.epoch.Term, data)
	default:
		err = r.group.Propose(e.epoch.Term, data)
	}
	if err != nil {
		r.node.Logger.Debug("not proposed", "partition", r.id, "error", err)
		r.mu.Lock()
		if r.mu.leadership.Is(e.epoch) {
			r.mu.inFlight = r.mu.inFlight[:len(r.mu.inFlight)-1]
			m.Proposals.Dec()
			end.refused, end.waiters = p.answers, p.waiters
			r.mu.reads.waiting -= len(p.waiters)
			r.abandonLocked(&end, p)
		}
		r.mu.Unlock()
		r.finish(&end)
	}
}

// abandonLocked gives up a proposal whose writes are pending, and which is neither building nor in
// flight, and all that is in flight with it.
func (r *Replica) abandonLocked(end *ending, p *pendingEntry) {
	r.node.Metrics.Writes.PendingWrites.Sub(float64(len(p.writes)))
	r.giveUpLocked(end, outcomeUnknown)
	r.raiseBarrierLocked()
}
