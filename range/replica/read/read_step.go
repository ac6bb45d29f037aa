package read

import (
	"github.com/tidemarkdb/tidemark/range/replica/concurrency"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// readStep says how a read goes on when the replica's lock is released.
type readStep struct {
	do readAction
	// refusal is set with readRefuse.
	refusal *kvpb.Response
	// work is the work on locks that came up; nil if there is none.
	work *concurrency.Work
}

type readAction uint8

const (
	// readWait: the read waits, and is resumed.
	readWait readAction = iota
	// readServe: the read reads the engine.
	readServe
	// readRefuse: the read is answered with a refusal.
	readRefuse
	// readLeave: the read is over, since its part does not wait.
	readLeave
	// readConfirm: the read waits for a read index, which has to be asked for.
	readConfirm
	// readKick: the read waits for a proposal that gathers writes, which has to be proposed now.
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
		if r.Enter() { // the read may have ended by now, and no longer keep the replica open
			r.evals.Kick(true)
			r.Exit()
		}
	}
	if s.work != nil {
		r.evals.Do(s.work)
	}
}

// moved refuses a read, before or after it has read, if the partition has changed since the read
// was admitted.
func (r *Reader) moved(rd *read) *kvpb.Response {
	if d := r.MovedFrom(rd.descriptor.GetGeneration()); d != nil {
		return r.Refuse.StaleEpoch(rd.pending.Request, d)
	}
	return nil
}
