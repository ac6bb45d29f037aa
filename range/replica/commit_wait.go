package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// A commit with commit wait is replicated and applied as any other, but nobody is told of it before every clock of the cluster has
// passed its timestamp: neither its client, nor who asks the coordinator because one of its locks is in the way. So whatever begins
// because of it has a later timestamp, on whichever node.

// commitWaits are what is held back. They are guarded by the replica's lock.
type commitWaits struct {
	// answers are those that wait, bounded by heldMost.
	answers map[*heldAnswer]struct{}
	// transactions are those committed here with commit wait, until every clock has passed their timestamps.
	transactions map[txn.ID]hlc.Timestamp
}

// heldAnswer is an answer that waits for the clocks.
type heldAnswer struct {
	answer
	since time.Time
	timer *time.Timer
}

// heldMost is how many answers a partition holds back at most; more are told that their outcome is unknown.
const heldMost = 16 << 10

// passed says that every clock has passed a timestamp.
func (r *Replica) passed(ts hlc.Timestamp) bool {
	earliest, _ := r.node.Clock.Bounds()
	return earliest > ts.Wall
}

// holdFor has the answer to the write at hand wait, if that is wanted.
func (e *evaluation) holdFor(wanted bool, ts hlc.Timestamp) {
	if wanted {
		e.hold = ts
	}
}

// holdEnd has the answer to the end of a transaction wait, and those to who asks about it.
func (e *evaluation) holdEnd(id txn.ID, s *kvpb.TransactionStatus, ts hlc.Timestamp) {
	if s.GetState() != kvpb.TransactionState_COMMITTED || e.r.passed(ts) {
		return
	}
	e.hold = ts
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.mu.held
	for other, at := range h.transactions {
		if r.passed(at) {
			delete(h.transactions, other)
		}
	}
	if h.transactions == nil {
		h.transactions = make(map[txn.ID]hlc.Timestamp)
	}
	h.transactions[id] = ts
}

// holdPush has the answer to who asks about a transaction wait. What an earlier leadership has committed may have been with commit wait.
func (e *evaluation) holdPush(id txn.ID, s *kvpb.TransactionStatus, ts hlc.Timestamp) {
	if s.GetState() != kvpb.TransactionState_COMMITTED || e.r.passed(ts) {
		return
	}
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, held := r.mu.held.transactions[id]; held || ts.LessEq(r.mu.low) {
		e.hold = ts
	}
}

// send answers a request, now or when every clock has passed what the answer waits for.
func (r *Replica) send(a *answer) {
	if a.hold.IsZero() || r.passed(a.hold) {
		r.reply(a.pending, a.command, a.response)
		return
	}
	r.mu.Lock()
	if r.closed.Load() || len(r.mu.held.answers) >= heldMost {
		r.mu.Unlock()
		r.reply(a.pending, a.command, r.unknownOutcome(a.pending.Request))
		return
	}
	if r.mu.held.answers == nil {
		r.mu.held.answers = make(map[*heldAnswer]struct{})
	}
	h := &heldAnswer{answer: *a, since: time.Now()}
	r.mu.held.answers[h] = struct{}{}
	if r.node.hooks.lockTime == nil {
		h.timer = time.AfterFunc(r.until(h.hold), func() { r.releaseHeld(h) })
	}
	r.mu.Unlock()
}

// until is about how long it takes for all clocks to pass a timestamp.
func (r *Replica) until(ts hlc.Timestamp) time.Duration {
	earliest, _ := r.node.Clock.Bounds()
	return max(time.Duration(ts.Wall-earliest)+1, 100*time.Microsecond)
}

// releaseHeld answers, if the time has come.
func (r *Replica) releaseHeld(h *heldAnswer) {
	r.mu.Lock()
	if _, still := r.mu.held.answers[h]; !still {
		r.mu.Unlock()
		return
	}
	if !r.passed(h.hold) {
		// Clocks may be set back, and their error may grow.
		if h.timer != nil {
			h.timer.Reset(r.until(h.hold))
		}
		r.mu.Unlock()
		return
	}
	delete(r.mu.held.answers, h)
	r.mu.Unlock()
	r.node.Metrics.commitWaits.Observe(since(h.since))
	r.reply(h.pending, h.command, h.response)
}

// endHeldLocked takes out all that is held back: the replica is closed.
func (r *Replica) endHeldLocked(end *ending) {
	for h := range r.mu.held.answers {
		if h.timer != nil {
			h.timer.Stop()
		}
		end.unknown = append(end.unknown, h.answer)
	}
	r.mu.held = commitWaits{}
}
