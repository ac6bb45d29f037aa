package read

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// readStep is how a read goes on when the replica's lock is released.
type readStep struct {
	do readAction
	// refusal is set with readRefuse.
	refusal *kvpb.Response
	// work is what came up about locks; nil: nothing.
	work *concurrency.Work
}

type readAction uint8

const (
	// readWait: it waits, and is resumed.
	readWait readAction = iota
	// readServe: it reads the engine.
	readServe
	// readRefuse: it is answered with a refusal.
	readRefuse
	// readLeave: its part does not wait, and is over.
	readLeave
	// readConfirm: it waits for a read index, which is to be asked for.
	readConfirm
	// readKick: it waits for a proposal that gathers, which is not to let others wait.
	readKick
)

func refuseStep(refusal *kvpb.Response) readStep {
	return readStep{do: readRefuse,
		refusal: refusal}
}

// goOn does what a step says. The read may be over when it returns.
func (r *Reader) goOn(rd *read, s *readStep) {
	switch s.do {
	case readServe:
		r.serve(rd)
	case readRefuse:
		r.endRead(rd, s.refusal)
	case readLeave:
		r.Exit()
	case readConfirm:
		r.confirm()
	case readKick:
		if r.Enter() { // the read may have ended by now, and leave nothing in the replica
			r.evals.Kick(true)
			r.Exit()
		}
	}
	if s.work != nil {
		r.evals.Do(s.work)
	}
}

// moved refuses a read, before or after it has read, if the partition is not what it was when the
// read was admitted.
func (r *Reader) moved(rd *read) *kvpb.Response {
	if d := r.MovedFrom(rd.descriptor.GetGeneration()); d != nil {
		return r.Refuse.StaleEpoch(rd.pending.Request, d)
	}
	return nil
}
