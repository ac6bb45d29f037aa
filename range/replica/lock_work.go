package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// What the concurrency manager leaves to be done is done here, without the replica's lock.

// Locks are the concurrency manager's.
type lock = concurrency.Lock

// lockWork is what is to be done about locks when the replica's lock is released.
type lockWork struct{ concurrency.Work }

// run does it.
func (w *lockWork) run(r *Replica) {
	for _, rd := range w.Reads {
		r.resumeLockedRead(rd.Element.(*read))
	}
	for _, l := range w.ExpiredReads {
		rd := l.Element.(*read)
		r.endRead(rd, r.refuse.Locked(rd.pending.Request, l.Conflict))
	}
	for _, l := range w.ExpiredWrites {
		p := writeOf(l)
		r.reply(p.pending, p.command, r.refuse.Locked(p.pending.Request, l.History.Conflict))
	}
	for _, x := range w.Resolve {
		r.resolveDecided(x)
	}
	for _, p := range w.Pushes {
		r.node.Pusher.Push(p.Request, func(s *kvpb.TransactionStatus, err error) {
			r.pushed(p, s, err)
		})
	}
	*w = lockWork{}
}

// pushed takes the answer to a push.
func (r *Replica) pushed(p concurrency.Push, s *kvpb.TransactionStatus, err error) {
	var work lockWork
	r.mu.Lock()
	r.mu.locks.Answered(p, s, err, r.node.LockNow(), &work.Work)
	r.mu.Unlock()
	work.run(r)
}

// ReevaluateWaiters implements concurrency.Owner.
func (r *Replica) ReevaluateWaiters() {
	if !r.enter() {
		return
	}
	defer r.exit()
	var work lockWork
	r.mu.Lock()
	r.mu.locks.Ticked()
	r.mu.locks.Reevaluate(r.node.LockNow(), &work.Work)
	r.mu.Unlock()
	work.run(r)
}

// reevaluateLocked reevaluates what waits, if anything does.
func (r *Replica) reevaluateLocked() (work lockWork) {
	if r.mu.locks.Waiting() {
		r.mu.locks.Reevaluate(r.node.LockNow(), &work.Work)
	}
	return work
}

// giveUpWaitersLocked refuses all that waits for transactions, and forgets which locks are in
// flight.
func (r *Replica) giveUpWaitersLocked(end *ending) {
	writes, reads := r.mu.locks.GiveUp()
	for _, w := range writes {
		end.refusedWrites = append(end.refusedWrites, *writeOf(w))
	}
	for _, rd := range reads {
		end.waiters = append(end.waiters, rd.Element.(*read))
	}
}

// deadline is when a request's caller stops waiting; zero: never.
func deadline(p *config.Pending) time.Time {
	t := p.Request.GetTimeoutMicros()
	if t == 0 || t >= uint64(1<<62)/1000 {
		return time.Time{}
	}
	return p.Arrived.Add(time.Duration(t) * time.Microsecond)
}
