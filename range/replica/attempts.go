package replica

import (
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Attempts of one request are evaluated in the order in which they came, but one that meets a lock waits, and comes back later, after
// whatever was evaluated meanwhile: a later attempt too. If that one wrote, its version tells (dedupe.go). If it was answered that nothing was
// done, there is no version, and the answer has to stay true: the one that waited must not take effect any more, however
// the state has changed since. So those that wait are known by their request, and the next attempt that is evaluated ends them, when it is given such
// an answer, or waits itself.
//
// This concerns the commands that do nothing if the state is such, and commits in one phase: a conflict may be with what is in flight, and that is
// lost with the reign, while what is in the queue stays there. A Put and a batch always write. Other requests of transactions wait too, but what
// ends all attempts of one does not pass, or what a late one does comes to nothing: what is told of a record waits until that is applied,
// and locks that are laid for a transaction that is over commit nothing.
//
// INVARIANT: of the attempts of a request that have waited and are not finished, be they parked or in the queue, at most one is not
// superseded, and it is the one in waits.attempts. A reign may end in between: what is in the queue stays there.

// mayDoNothing says that the command can be answered, for good, without having written anything.
func (w *write) mayDoNothing() bool {
	return w.internal == nil && w.command.CanDoNothing(w.pending.Request)
}

func (w *write) requestID() mvcc.RequestID {
	return mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
}

// attemptWaitsLocked notes that a write waits, and ends an earlier attempt.
func (r *Replica) attemptWaitsLocked(w *write) {
	if !w.mayDoNothing() {
		return
	}
	r.supersedeLocked(w)
	if r.mu.waits.attempts == nil {
		r.mu.waits.attempts = make(map[mvcc.RequestID]*transactional)
	}
	r.mu.waits.attempts[w.requestID()] = w.x
}

// attemptEndsLocked notes that a write that has waited waits no longer, and is not in the queue.
func (r *Replica) attemptEndsLocked(w *write) {
	if w.x == nil || !w.mayDoNothing() {
		return
	}
	if id := w.requestID(); r.mu.waits.attempts[id] == w.x {
		delete(r.mu.waits.attempts, id)
	}
}

// supersedeLocked ends the attempt of a write's request that waits, if there is one. It is answered when its turn comes.
func (r *Replica) supersedeLocked(w *write) {
	if len(r.mu.waits.attempts) == 0 {
		return
	}
	if earlier := r.mu.waits.attempts[w.requestID()]; earlier != nil {
		earlier.superseded = true
		delete(r.mu.waits.attempts, w.requestID())
	}
}

// superseded says that a later attempt of a write that has waited was evaluated meanwhile.
func (e *evaluation) superseded(w *write) bool {
	if w.x == nil || w.x.conflict == nil || !w.mayDoNothing() {
		return false // it has not waited
	}
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.attemptEndsLocked(w)
	return w.x.superseded
}

// answerNothingDone answers a write that writes nothing, because of what was read, and sees to it that no earlier attempt does.
// sequence is that of answerRead.
func (e *evaluation) answerNothingDone(w *write, response *kvpb.Response, sequence uint64) {
	r := e.r
	r.mu.Lock()
	r.supersedeLocked(w)
	r.mu.Unlock()
	e.answerRead(w, response, sequence)
}

// supersededError is for an attempt of which nobody expects an answer any more: a later one was evaluated. It has no effect.
func (r *Replica) supersededError(q *kvpb.Request) *kvpb.Response {
	response := newError(q, kvpb.ErrorCode_NOT_LEADER,
		"partition %s: the request waited for a lock, and was sent again meanwhile; this attempt of it did not run", r.id)
	response.Error.Leader = r.leaderHint()
	return response
}
