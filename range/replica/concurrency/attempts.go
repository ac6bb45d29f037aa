package concurrency

import "github.com/tidemarkdb/tidemark/range/mvcc"

// Attempts of one request are evaluated in the order in which they came, but one that meets a lock
// waits, and comes back after whatever was evaluated meanwhile: a later attempt too. If that one
// wrote, its version tells. If it was answered that nothing was done, there is no version, and the
// answer has to stay true: the one that waited must not take effect any more, however the state has
// changed since. So those that wait are known by their request, and the next attempt that is
// evaluated ends them, when it is given such an answer, or waits itself.
//
// This concerns the commands that do nothing if the state is such, and commits in one phase: a
// conflict may be with what is in flight, and that is lost with the leadership epoch, while what is
// in the queue stays there. A Put and a batch write, unless no disk has room for them, which may be
// otherwise when an earlier attempt has its turn. Other requests of transactions wait
// too, but what ends all attempts of one does not pass, or what a late one does comes to nothing:
// what is told of a record waits until that is applied, and locks that are acquired for a
// transaction that is over commit nothing.
//
// INVARIANT: of the attempts of a request that have waited and are not finished, be they waiting or
// in the queue, at most one has no later attempt: the Attempts name that one. A leadership epoch
// may end in between: what is in the queue stays there.

// Attempts are the writes that have waited and are not finished, by request. The zero Attempts are
// none.
type Attempts struct{ unfinished map[mvcc.RequestID]*History }

// waits notes that a write waits, and ends an earlier attempt.
func (a *Attempts) waits(w *Waiter) {
	if !w.MayDoNothing {
		return
	}
	a.EndEarlier(w.Request)
	if a.unfinished == nil {
		a.unfinished = make(map[mvcc.RequestID]*History)
	}
	a.unfinished[w.Request] = w.History
}

// End notes that a write that has waited waits no longer, and is not in the queue. A write
// that has not waited may be named too.
func (a *Attempts) End(id mvcc.RequestID, h *History) {
	if a.unfinished[id] == h && h != nil {
		delete(a.unfinished, id)
	}
}

// EndEarlier ends the attempt of a request that waits, or is in the queue after that, if
// there is one. It is answered when its turn comes.
func (a *Attempts) EndEarlier(id mvcc.RequestID) {
	if len(a.unfinished) == 0 {
		return
	}
	if earlier := a.unfinished[id]; earlier != nil {
		earlier.Retried = true
		delete(a.unfinished, id)
	}
}

// Len is how many requests have an attempt that has waited and is not finished.
func (a *Attempts) Len() int { return len(a.unfinished) }
