package concurrency

import "github.com/tidemarkdb/tidemark/range/mvcc"

// Attempts of one request are evaluated in the order in which they came, except that an attempt
// that meets a lock waits, and is evaluated again after others, which may include a later attempt
// of the same request. If the later attempt wrote, its version shows it. If the later attempt was
// answered that nothing was done, there is no version, and the answer must stay true: the attempt
// that waited must not take effect any more, however the state has changed since. So attempts that
// wait are registered by their request, and the next attempt that is evaluated ends the registered
// one when it gets such an answer, or waits itself.
//
// This matters for commands that may do nothing, depending on the state, and for commits in one
// phase: their conflict may be with an entry in flight, which is lost with the leadership epoch,
// while requests in the queue stay there. Puts and batches always write, unless no disk has room
// for them, which may have changed when an earlier attempt has its turn. Other requests of
// transactions wait too, but the reason that ends all attempts of such a request does not go away,
// or a late attempt has no effect: an answer about a record waits until the record is applied, and
// locks acquired for a transaction that is over commit nothing.
//
// INVARIANT: of the attempts of a request that have waited and are not finished, whether they still
// wait or are in the queue, at most one has no later attempt, and Attempts holds that one. A
// leadership epoch may end in between: requests in the queue stay there.

// Attempts holds the writes that have waited and are not finished, by request. The zero value is
// empty.
type Attempts struct{ unfinished map[mvcc.RequestID]*History }

// waits registers a write that waits, and ends an earlier attempt.
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

// End notes that a write that has waited waits no longer, and is not in the queue. It ignores a
// write that has not waited.
func (a *Attempts) End(id mvcc.RequestID, h *History) {
	if a.unfinished[id] == h && h != nil {
		delete(a.unfinished, id)
	}
}

// EndEarlier ends the attempt of a request that waits, or is in the queue after waiting, if there
// is one. That attempt is answered when its turn comes.
func (a *Attempts) EndEarlier(id mvcc.RequestID) {
	if len(a.unfinished) == 0 {
		return
	}
	if earlier := a.unfinished[id]; earlier != nil {
		earlier.Retried = true
		delete(a.unfinished, id)
	}
}

// Len returns how many requests have an attempt that has waited and is not finished.
func (a *Attempts) Len() int { return len(a.unfinished) }
