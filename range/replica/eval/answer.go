package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// tooLate says that what was found out expires at or below the timestamp at which the write would
// take effect. Then the write is evaluated again, for that timestamp or a later one: in a moment
// the caller's lock has been released, and others may have been read.
func (e *evaluation) tooLate(ts hlc.Timestamp) bool {
	if !e.HoldsBelow(ts) {
		e.AtLeast = hlc.Max(e.AtLeast, ts)
		e.later = true
	}
	return e.later
}

// refuse answers a write that has no effect, and for a reason that needs no proof.
func (e *evaluation) refuse(w *write, response *kvpb.Response) {
	e.ready = append(e.ready,
		machine.Answer{Pending: w.pending, Command: w.command, Response: response})
}

// answerApplied answers a write with what is true once the proposal being built has been applied.
func (e *evaluation) answerApplied(w *write, response *kvpb.Response) {
	e.proposal.Answers = append(e.proposal.Answers, machine.Answer{Pending: w.pending,
		Command: w.command, Response: response, Hold: e.Hold})
}

// answerRead answers a write that writes nothing, because of what was read. sequence is of the
// proposal that carries the version that decided it; 0 if that is applied.
func (e *evaluation) answerRead(w *write, response *kvpb.Response, sequence uint64) {
	a := machine.Answer{Pending: w.pending, Command: w.command, Response: response, Hold: e.Hold}
	switch {
	case sequence == 0 && e.leased && !e.inEpoch():
		// What was in flight is not pending any more, but may be applied yet, or was just now: an
		// earlier attempt of this request too.
		e.refuse(w, e.r.Refuse.NotLeader(w.pending.Request))
	case sequence == 0 && e.leased:
		// The same proof as a read's: the lease was held, then the state was read.
		e.ready = append(e.ready, a)
	case sequence == 0 || sequence == e.proposal.Sequence || !e.leased:
		// If an entry of this term that is proposed now is committed, no other replica led when it
		// was evaluated. One that is on its way already proves nothing: it may have been
		// acknowledged before the question, and its acknowledgements come late. If this one has an
		// effect, then that one has.
		e.proposal.Answers = append(e.proposal.Answers, a)
	default:
		e.answerWith(a, sequence)
	}
}

// inEpoch says whether the epoch still lasts in which this began: all that was read was read in it.
func (e *evaluation) inEpoch() bool {
	e.r.Mu.Lock()
	defer e.r.Mu.Unlock()
	return e.r.Mu.Leadership.Is(e.epoch)
}

// answerWith answers when the pending entry that has the sequence is applied.
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
		e.ready = append(e.ready, a) // applied meanwhile
		return
	}
	r.Mu.Unlock()
	e.over = true
	e.proposal.Answers = append(e.proposal.Answers, a)
}

// answerDuplicate answers a retry. What was applied in this epoch is a fact, and needs no proof of
// leadership: it is of this term or an earlier one, and each later leader applies it before it
// serves. What was applied since may be an entry of a later leader, which has not applied it itself
// yet: then a read there could miss what is acknowledged here.
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
		// Its writes are pending and may not be in the batch: nothing of this proposal may go out.
		e.over = true
		if !e.inEpoch() {
			// What was read may be what another leader has made of it since: that is no damage.
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

// answerNothingDone answers a write that writes nothing, because of what was read, and sees to it
// that no earlier attempt does. sequence is that of answerRead.
func (e *evaluation) answerNothingDone(w *write, response *kvpb.Response, sequence uint64) {
	r := e.r
	r.Mu.Lock()
	r.Mu.Locks.Writes.Attempts.EndEarlier(w.requestID())
	r.Mu.Unlock()
	e.answerRead(w, response, sequence)
}

// wroteAt is wrote, with the command's answer to what was done at a timestamp.
func (e *evaluation) wroteAt(w *write, ts hlc.Timestamp, ok bool, err error) error {
	if e.later {
		return nil
	}
	return e.wrote(w, ok, err,
		func() *kvpb.Response { return e.Respond(&e.Result, w.pending.Request, ts) })
}
