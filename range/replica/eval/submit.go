package eval

import (
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Enqueue queues a write, or refuses it.
func (r *Evaluator) Enqueue(p config.Pending, c *command.Command) bool {
	w := write{pending: p, command: c}
	if refusal := r.checkWrite(&w); refusal != nil {
		r.Reply(p, c, refusal)
		return false
	}
	r.Mu.Lock()
	term, leads := r.Mu.Leadership.Term, r.Mu.Leadership.IsLeader
	switch {
	case r.UnavailableLocked() != nil:
		u := r.UnavailableLocked()
		r.Mu.Unlock()
		r.Reply(p, c, u.Refuse(r.Machine, p.Request))
		return false
	case !leads || term != p.Request.Term:
		r.Mu.Unlock()
		r.Group.Wake()
		r.Reply(p, c, r.Refuse.NotLeader(p.Request))
		return false
	}
	stalled := r.stalledLocked(p.Arrived)
	if n := r.queue.Len(); n >= r.Node.MaxQueuedWrites ||
		(n > 0 && r.queue.Size()+w.size > r.Node.MaxQueuedBytes) {
		r.Mu.Unlock()
		r.Reply(p, c, r.Refuse.Overloaded(p.Request, "writes wait in its queue"))
		if stalled {
			r.CheckStall(p.Arrived)
		}
		return false
	}
	r.queue.Push(w)
	r.Mu.Unlock()
	r.Node.Metrics.Writes.Queued.Inc()
	if stalled {
		r.CheckStall(p.Arrived)
	}
	return true
}

// enqueueInternal queues a command of this package's own.
func (r *Evaluator) enqueueInternal(c *internalCommand) {
	r.Mu.Lock()
	switch {
	case r.Mu.Failed != nil:
		err := r.Mu.Failed
		r.Mu.Unlock()
		c.done(err)
		return
	case !r.Mu.Leadership.Serving():
		r.Mu.Unlock()
		c.done(ErrNotLeader)
		return
	case r.queue.Len() >= r.Node.MaxQueuedWrites && !c.thaws:
		r.Mu.Unlock()
		c.done(ErrOverloaded)
		return
	}
	if w := (write{internal: c, command: command.Unknown()}); c.thaws {
		r.queue.PushFront([]write{w})
	} else {
		r.queue.Push(w)
	}
	r.Mu.Unlock()
	r.Node.Metrics.Writes.Queued.Inc()
	// A goroutine that happens to bring news of a transaction enqueues shared commands; it must not
	// read the disk.
	r.Kick(c.shared)
}

// checkWrite reports what is wrong with a write by itself, whichever replica leads.
func (r *Evaluator) checkWrite(w *write) *kvpb.Response {
	q := w.pending.Request
	w.session = wire.FromTimestamp(q.Session)
	if q.Sequence == 0 {
		return refusal.New(q, kvpb.ErrorCode_INVALID_ARGUMENT,
			"a write needs a sequence number, so that a retry can be told from a second write")
	}
	asked, problem := w.command.CheckWrite(r.Descriptor(), q)
	w.size = asked.Size + request.WriteOverhead
	if asked.Transaction != nil {
		w.x = &transactional{Transaction: *asked.Transaction}
	}
	if problem != nil {
		return r.Refuse.Problem(q, problem)
	}
	return nil
}

// Kick starts an evaluation of the queue, if there is something to do and no goroutine does it yet.
// For the group's own workers (callback), and for long work, the pool runs it.
func (r *Evaluator) Kick(callback bool) { r.KickIn(nil, callback) }

// KickIn is Kick within a pass.
func (r *Evaluator) KickIn(pass Pass, callback bool) {
	r.Mu.Lock()
	if r.evaluating || !r.readyLocked() {
		r.Mu.Unlock()
		return
	}
	r.evaluating = true
	long := r.Mu.Leadership.BarrierDue() || (r.queue.Len() > 0 && r.queue.First().alone())
	r.Mu.Unlock()
	if (callback || long) && r.GoActive(func() { r.evaluateQueue(nil) }) {
		return
	}
	r.evaluateQueue(pass)
}

// readyLocked reports whether there is something to evaluate or propose now.
func (r *Evaluator) readyLocked() bool {
	if r.Mu.Leadership.BarrierDue() {
		return r.Mu.Leadership.IsLeader
	}
	if !r.Mu.Leadership.Serving() || r.Mu.WaitsAlone() || r.Mu.Holding != nil &&
		!(r.Mu.Holding.Standing && r.queue.Len() > 0 && r.queue.First().thaws()) {
		return false
	}
	room := len(r.Mu.InFlight) < r.Node.MaxInFlight
	if e := r.open; e != nil {
		return !r.waitsLocked(e) || (r.queue.Len() > 0 && e.takesLocked(r.queue.First()))
	}
	return r.queue.Len() > 0 && (room || r.queue.First().hurried()) &&
		(len(r.Mu.InFlight) == 0 || !r.queue.First().alone())
}

// IdleLocked reports that nothing is in flight or being evaluated.
func (r *Evaluator) IdleLocked() bool {
	return !r.evaluating && r.open == nil && r.Mu.Building == nil && len(r.Mu.InFlight) == 0
}
