package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/refusal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// The way of a client's requests through a replica: Take, Evaluate, Serve. The caller is one pass
// of a message through a node, which may have requests for other replicas as well. It calls Take
// for all of them, then Evaluate for those with writes, then Serve for all.

// Pass is what the evaluation for a client's message leaves its proposals with.
type Pass interface {
	// Client is whose message it is.
	Client() uint64
	// Propose is Group.Propose, but nothing need be done about the data before the pass has had the
	// writes of other replicas evaluated too.
	Propose(term uint64, data []byte) error
}

// Take is the step in which the order of requests matters: it queues the writes. It does not touch
// the disk. Each request is answered once, in any order, possibly before Take returns. If ok, the
// caller has to call Evaluate, if writes were queued, and then Serve, with the same requests;
// otherwise all have been answered.
func (r *Replica) Take(requests []config.Pending) (queued, ok bool) {
	if !r.enter() {
		for i := range requests {
			r.reply(requests[i], command.Of(requests[i].Request), r.refuse.Closed(requests[i].Request))
		}
		return false, false
	}
	writes := 0
	for i := range requests {
		if c := command.Of(requests[i].Request); c.Way == command.InQueue {
			writes++
			queued = r.enqueue(requests[i], c) || queued
		}
	}
	r.work.took(len(requests), writes)
	return queued, true
}

// Evaluate evaluates the writes that are queued. What is proposed is left in the pass, as far as it
// is the pass's client alone that waits for it; a nil pass is none. It does not wait for
// replication, and may wait for the disk.
func (r *Replica) Evaluate(pass Pass) {
	if !r.enter() {
		return // closing it refuses what is queued
	}
	defer r.exit()
	r.kickIn(pass, false)
}

// Serve does what Take has left: it reads. Reads of single keys are answered at once. It may wait
// for the disk.
func (r *Replica) Serve(requests []config.Pending) {
	defer r.exit()
	for i := range requests {
		switch c := command.Of(requests[i].Request); {
		case c.Way == command.AtTimestamp:
			r.startRead(&read{pending: requests[i], command: c})
		case c == command.InspectTransactions:
			r.reply(requests[i], c, r.inspectTransactions(requests[i].Request))
		case c.Way == command.NotKnown || c.Way == command.ByNode:
			r.reply(requests[i], c, refusal.New(requests[i].Request, kvpb.ErrorCode_INVALID_ARGUMENT,
				"the request has no command that a partition knows; is the client newer than this server?"))
		}
	}
}

// enqueue queues a write, or refuses it.
func (r *Replica) enqueue(p config.Pending, c *command.Command) bool {
	w := write{pending: p, command: c}
	if refusal := r.checkWrite(&w); refusal != nil {
		r.reply(p, c, refusal)
		return false
	}
	r.mu.Lock()
	term, leads := r.mu.leadership.Term, r.mu.leadership.IsLeader
	switch {
	case r.unavailableLocked() != nil:
		u := r.unavailableLocked()
		r.mu.Unlock()
		r.reply(p, c, u.refuse(r, p.Request))
		return false
	case !leads || term != p.Request.Term:
		r.mu.Unlock()
		r.group.Wake()
		r.reply(p, c, r.refuse.NotLeader(p.Request))
		return false
	}
	stalled := r.stalledLocked(p.Arrived)
	if n := r.mu.queue.Len(); n >= r.node.MaxQueuedWrites ||
		(n > 0 && r.mu.queue.Size()+w.size > r.node.MaxQueuedBytes) {
		r.mu.Unlock()
		r.reply(p, c, r.refuse.Overloaded(p.Request, "writes wait in its queue"))
		if stalled {
			r.checkStall(p.Arrived)
		}
		return false
	}
	r.mu.queue.Push(w)
	r.mu.Unlock()
	r.node.Metrics.Writes.Queued.Inc()
	if stalled {
		r.checkStall(p.Arrived)
	}
	return true
}

// enqueueInternal queues a command of this package's own.
func (r *Replica) enqueueInternal(c *internalCommand) {
	r.mu.Lock()
	switch {
	case r.mu.failed != nil:
		err := r.mu.failed
		r.mu.Unlock()
		c.done(err)
		return
	case !r.mu.leadership.Serving():
		r.mu.Unlock()
		c.done(errNotLeader)
		return
	case r.mu.queue.Len() >= r.node.MaxQueuedWrites && !c.thaws:
		r.mu.Unlock()
		c.done(errOverloaded)
		return
	}
	if w := (write{internal: c, command: command.Unknown()}); c.thaws {
		r.mu.queue.PushFront([]write{w})
	} else {
		r.mu.queue.Push(w)
	}
	r.mu.Unlock()
	r.node.Metrics.Writes.Queued.Inc()
	// What is shared is set off by the goroutine that happens to bring news of a transaction: not
	// by a goroutine that may read the disk.
	r.kick(c.shared)
}

// checkWrite says what is wrong with a write by itself, whichever replica leads.
func (r *Replica) checkWrite(w *write) *kvpb.Response {
	q := w.pending.Request
	w.session = wire.FromTimestamp(q.Session)
	if q.Sequence == 0 {
		return refusal.New(q, kvpb.ErrorCode_INVALID_ARGUMENT,
			"a write needs a sequence number, so that a retry can be told from a second write")
	}
	asked, problem := w.command.CheckWrite(r.Descriptor(), q)
	w.size = asked.Size + command.WriteOverhead
	if asked.Transaction != nil {
		w.x = &transactional{Transaction: *asked.Transaction}
	}
	if problem != nil {
		return r.refuse.Problem(q, problem)
	}
	return nil
}

// kick has the queue evaluated, if it is ready and no goroutine is at work on it. In the group's
// own workers (callback) and for long work the pool does it.
func (r *Replica) kick(callback bool) { r.kickIn(nil, callback) }

// kickIn is kick in a pass.
func (r *Replica) kickIn(pass Pass, callback bool) {
	r.mu.Lock()
	if r.mu.evaluating || !r.readyLocked() {
		r.mu.Unlock()
		return
	}
	r.mu.evaluating = true
	long := r.mu.leadership.BarrierDue() || (r.mu.queue.Len() > 0 && r.mu.queue.First().alone())
	r.mu.Unlock()
	if (callback || long) && r.goActive(func() { r.evaluateQueue(nil) }) {
		return
	}
	r.evaluateQueue(pass)
}

// readyLocked says whether there is something to evaluate or propose now.
func (r *Replica) readyLocked() bool {
	if r.mu.leadership.BarrierDue() {
		return r.mu.leadership.IsLeader
	}
	if !r.mu.leadership.Serving() || r.soleLocked() || r.mu.holding != nil &&
		!(r.mu.holding.standing && r.mu.queue.Len() > 0 && r.mu.queue.First().thaws()) {
		return false
	}
	room := len(r.mu.inFlight) < r.node.MaxInFlight
	if e := r.mu.open; e != nil {
		return !r.waitsLocked(e) || (r.mu.queue.Len() > 0 && e.takesLocked(r.mu.queue.First()))
	}
	return r.mu.queue.Len() > 0 && (room || r.mu.queue.First().hurried()) &&
		(len(r.mu.inFlight) == 0 || !r.mu.queue.First().alone())
}

// goActive runs f in the pool, and counts it as active.
func (r *Replica) goActive(f func()) bool { return r.goIn(r.node.Pool, f) }

// goLong runs f in the pool for long reads, and counts it as active.
func (r *Replica) goLong(f func()) bool { return r.goIn(r.node.Long, f) }

func (r *Replica) goIn(pool *config.Pool, f func()) bool {
	r.active.Add(1)
	if pool.Go(func() {
		defer r.exit()
		began := time.Now()
		f()
		r.work.pooled.Add(int64(time.Since(began)))
	}) {
		return true
	}
	r.exit()
	return false
}

// since is the time that a metric wants.
func since(start time.Time) float64 { return time.Since(start).Seconds() }
