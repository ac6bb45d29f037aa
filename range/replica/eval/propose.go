package eval

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
)

// propose proposes the entry, if the evaluation has made one.
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
	entry.Kind, entry.Proposer, entry.Sequence = e.kind, r.Self, p.Sequence
	entry.Highest, entry.Delta = hlc.Max(entry.Highest, e.highest), e.delta
	if e.batch != nil && !e.batch.Empty() {
		entry.Batch = e.batch.Repr()
	}
	p.At = time.Now()
	closable, term := r.Closable()
	var end Ending
	r.Mu.Lock()
	r.Mu.Building = nil
	if len(e.again) > 0 {
		if r.Mu.Leadership.Is(e.epoch) && !e.over {
			r.queue.PushFront(e.again)
			r.Node.Metrics.Writes.Queued.Add(float64(len(e.again)))
		} else {
			end.refusedWrites = append(end.refusedWrites, e.again...)
		}
		clear(e.again)
		e.again = e.again[:0]
	}
	switch {
	case e.over || !r.Mu.Leadership.Is(e.epoch):
		// Nothing was proposed, so nothing will take effect.
		end.refused, end.Waiters = p.Answers, p.Waiters
		r.Mu.WaitingReads -= len(p.Waiters)
		if r.Mu.Leadership.Is(e.epoch) {
			// The entry's writes lie on top of other pending writes, which are given up too.
			r.abandonLocked(&end, p)
		}
		r.Mu.Unlock()
		r.Finish(&end)
		return
	case len(p.Answers) == 0 && len(p.Writes) == 0 && !p.Effects:
		end.Waiters = p.Waiters
		r.Mu.WaitingReads -= len(p.Waiters)
		r.Mu.Unlock()
		r.Finish(&end)
		return
	}
	entry.Base = r.Mu.Base(e.epoch.Term, &r.Mu.Applied)
	entry.Closed = hlc.Max(entry.Closed, r.PromiseLocked(closable, term))
	r.Mu.InFlight = append(r.Mu.InFlight, p)
	// The next evaluation, and other clients, must not wait for the rest of a pass.
	pass := e.pass
	e.pass = nil
	if pass != nil {
		next := r.queue.Len() > 0 && len(r.Mu.InFlight) < r.Node.MaxInFlight
		if next || !p.OnlyOf(pass.Client()) {
			pass = nil
		}
	}
	r.Mu.Unlock()

	m := &r.Node.Metrics.Writes
	m.Proposals.Inc()
	m.EntryWrites.Observe(float64(len(p.Answers)))
	data := entry.Encode()
	m.EntryBytes.Observe(float64(len(data)))
	var err error
	switch {
	case e.change != nil:
		err = r.Group.ProposeChange(e.epoch.Term, data, *e.change)
	case pass != nil:
		err = pass.Propose(e.epoch.Term, data)
	default:
		err = r.Group.Propose(e.epoch.Term, data)
	}
	if err != nil {
		r.Node.Logger.Debug("not proposed", "partition", r.ID, "error", err)
		r.Mu.Lock()
		if r.Mu.Leadership.Is(e.epoch) {
			r.Mu.InFlight = r.Mu.InFlight[:len(r.Mu.InFlight)-1]
			m.Proposals.Dec()
			end.refused, end.Waiters = p.Answers, p.Waiters
			r.Mu.WaitingReads -= len(p.Waiters)
			r.abandonLocked(&end, p)
		}
		r.Mu.Unlock()
		r.Finish(&end)
	}
}

// abandonLocked gives up a proposal whose writes are pending, and which is neither building nor in
// flight, and with it all that is in flight.
func (r *Evaluator) abandonLocked(end *Ending, p *machine.Entry) {
	r.Node.Metrics.Writes.PendingWrites.Sub(float64(len(p.Writes)))
	r.GiveUpLocked(end, OutcomeUnknown)
	r.RaiseBarrierLocked()
}
