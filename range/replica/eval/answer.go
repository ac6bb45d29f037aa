package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// tooLate reports that a value that the evaluation has read expires at or below the timestamp at
// which the write would take effect. Then the write is evaluated again for a later timestamp, and
// not moved: the lock of its transaction may be released by then, and other values may have been
// read.
func (e *evaluation) tooLate(ts hlc.Timestamp) bool {
	if !e.HoldsBelow(ts) {
		e.AtLeast = hlc.Max(e.AtLeast, ts)
		e.later = true
	}
	return e.later
}

// refuse answers a write that has no effect, for a reason that needs no proof of leadership.
func (e *evaluation) refuse(w *write, response *kvpb.Response) {
	e.ready = append(e.ready,
		machine.Answer{Pending: w.pending, Command: w.command, Response: response})
}

// answerApplied sends a response once the proposal that is being built has been applied.
func (e *evaluation) answerApplied(w *write, response *kvpb.Response) {
	e.proposal.Answers = append(e.proposal.Answers, machine.Answer{Pending: w.pending,
		Command: w.command, Response: response, Hold: e.Hold})
}

// answerRead answers a write that writes nothing because of what the evaluation has read. sequence
// is that of the proposal with the version that decided; 0 if that version is applied.
func (e *evaluation) answerRead(w *write, response *kvpb.Response, sequence uint64) {
	a := machine.Answer{Pending: w.pending, Command: w.command, Response: response, Hold: e.Hold}
	switch {
	case sequence == 0 && e.leased && !e.inEpoch():
		// What was in flight is no longer pending, but may still be applied, or was applied just
		// now; an earlier attempt of this request may be among it.
		e.refuse(w, e.r.Refuse.NotLeader(w.pending.Request))
	case sequence == 0 && e.leased:
		// The same proof as a read's: the lease was held, then the state was read.
		e.ready = append(e.ready, a)
	case sequence == 0 || sequence == e.proposal.Sequence || !e.leased:
		// If an entry of this term that is proposed now is committed, no other replica led when the
		// write was evaluated. An entry that is on its way already proves nothing: followers may
		// have acknowledged it before the evaluation, and their messages may come late. The
		// proposal that is being built has an effect only if the entries before it have one.
		e.proposal.Answers = append(e.proposal.Answers, a)
	default:
		e.answerWith(a, sequence)
	}
}

// inEpoch reports that the epoch of the evaluation lasts: all that was read was read within it.
func (e *evaluation) inEpoch() bool {
	e.r.Mu.Lock()
	defer e.r.Mu.Unlock()
	return e.r.Mu.Leadership.Is(e.epoch)
}

// answerWith sends an answer when the pending entry with a sequence is applied.
func (e *evaluation) answerWith(a machine.Answer, sequence uint64) {
	r := e.r
	r.Mu.Lock()
	if r.Mu.Leadership.Is(e.epoch) {
		if p := r.Mu.Proposed(sequence); p != nil {
			p.Answers = append(p.Answers, a)
			r.Mu.Unlock()
			return
		}
		r.Mu.Unlock()
		e.ready = append(e.ready, a) // the entry was applied meanwhile
		return
	}
	r.Mu.Unlock()
	e.over = true
	e.proposal.Answers = append(e.proposal.Answers, a)
}

// answerDuplicate answers a retry. A version that was applied in this epoch is a fact, and needs no
// proof of leadership: it is of this term or an earlier one, and each later leader applies it
// before it serves. A version that was applied after the epoch may be of a later leader that has
// not yet applied it itself: a read there could miss what is acknowledged here.
func (e *evaluation) answerDuplicate(w *write, response *kvpb.Response, sequence uint64) {
	e.r.Node.Metrics.Writes.Duplicates.Inc()
	a := machine.Answer{Pending: w.pending, Command: w.command, Response: response, Hold: e.Hold}
	switch {
	case sequence == 0 && !e.inEpoch():
		e.refuse(w, e.r.Refuse.NotLeader(w.pending.Request))
	case sequence == 0:
		e.ready = append(e.ready, a)
	case sequence == e.proposal.Sequence:
		e.proposal.Answers = append(e.proposal.Answers, a)
	default:
		e.answerWith(a, sequence)
	}
}

// wrote ends the evaluation of a write that has effects.
func (e *evaluation) wrote(w *write, ok bool, err error, response func() *kvpb.Response) error {
	switch {
	case err != nil:
		// The writes are pending and may not be in the batch: this proposal must not be sent.
		e.over = true
		if !e.inEpoch() {
			// Another leader may have written what the evaluation has read; that does no harm.
			e.refuse(w, e.r.Refuse.NotLeader(w.pending.Request))
			return nil
		}
		return err
	case !ok:
		e.refuse(w, e.r.Refuse.NotLeader(w.pending.Request))
		return nil
	}
	e.answerApplied(w, response())
	return nil
}

// answerNothingDone answers a write that writes nothing because of what the evaluation has read,
// and makes sure that no earlier attempt of it takes effect. sequence is as in answerRead.
func (e *evaluation) answerNothingDone(w *write, response *kvpb.Response, sequence uint64) {
	r := e.r
	r.Mu.Lock()
	r.Mu.Locks.Writes.Attempts.EndEarlier(w.requestID())
	r.Mu.Unlock()
	e.answerRead(w, response, sequence)
}

// wroteAt is wrote with the response of the command for a timestamp.
func (e *evaluation) wroteAt(w *write, ts hlc.Timestamp, ok bool, err error) error {
	if e.later {
		return nil
	}
	return e.wrote(w, ok, err,
		func() *kvpb.Response { return e.Respond(&e.Result, w.pending.Request, ts) })
}
