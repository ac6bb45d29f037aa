package eval

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Do does the work on locks that must wait until the replica's lock is released.
func (r *Evaluator) Do(w *concurrency.Work) {
	for _, rd := range w.Reads {
		rd.Element.(machine.Waiter).ResumeUnlocked()
	}
	for _, l := range w.ExpiredReads {
		rd := l.Element.(machine.Waiter)
		rd.Refuse(r.Refuse.Locked(rd.Asked(), l.Conflict))
	}
	for _, l := range w.ExpiredWrites {
		p := writeOf(l)
		r.Reply(p.pending, p.command, r.Refuse.Locked(p.pending.Request, l.History.Conflict))
	}
	for _, x := range w.Resolve {
		r.resolveDecided(x)
	}
	for _, p := range w.Pushes {
		r.Node.Pusher.Push(p.Request, func(s *kvpb.TransactionStatus, err error) {
			r.pushed(p, s, err)
		})
	}
	*w = concurrency.Work{}
}

// pushed takes the answer to a push.
func (r *Evaluator) pushed(p concurrency.Push, s *kvpb.TransactionStatus, err error) {
	var work concurrency.Work
	r.Mu.Lock()
	r.Mu.Locks.Answered(p, s, err, r.Node.LockNow(), &work)
	r.Mu.Unlock()
	r.Do(&work)
}

// ReevaluateWaiters implements concurrency.Owner.
func (r *Evaluator) ReevaluateWaiters() {
	if !r.Enter() {
		return
	}
	defer r.Exit()
	var work concurrency.Work
	r.Mu.Lock()
	r.Mu.Locks.Timer.Ticked()
	r.Mu.Locks.Reevaluate(r.Node.LockNow(), &work)
	r.Mu.Unlock()
	r.Do(&work)
}

// ReevaluateLocked has requests that wait for locks look again, if there are any.
func (r *Evaluator) ReevaluateLocked() (work concurrency.Work) {
	if r.Mu.Locks.Waiting() {
		r.Mu.Locks.Reevaluate(r.Node.LockNow(), &work)
	}
	return work
}

// SweepLocks asks about transactions that have had locks here for a while, and releases the locks
// of those that are over. It is called about every second where there are locks; on a replica that
// does not lead it does nothing. now is the physical clock, in nanoseconds since the epoch. It does
// not wait for anything.
func (r *Evaluator) SweepLocks(now int64) {
	if !r.Enter() {
		return
	}
	defer r.Exit()
	var work concurrency.Work
	r.Mu.Lock()
	if r.Mu.Leadership.Serving() {
		r.Mu.Locks.Sweep(now, r.Node.LockNow(), &work)
	}
	r.Mu.Unlock()
	r.Do(&work)
}
