package read

import "github.com/tidemarkdb/tidemark/range/timing"

// heldRead is a read that commit wait holds back: a commitwait.Held. It counts as a waiting read.
type heldRead struct {
	rd *read
	r  *Reader
}

// Release reads again. The state at the read's timestamp has not changed, whichever node leads by
// now.
func (h heldRead) Release() {
	h.r.WaitsNoMore(1)
	h.rd.pending.Timing.Enter(timing.Evaluate)
	h.r.serve(h.rd)
}

func (h heldRead) Refuse() {
	h.r.WaitsNoMore(1)
	h.r.refuseRead(h.rd)
}

// holdRead puts a read aside if it has seen a version that must not be seen yet.
func (r *Reader) holdRead(rd *read) bool {
	if rd.seen.IsZero() || r.Passed(rd.seen) {
		return false
	}
	r.Mu.Lock()
	full := r.TooManyReadsLocked()
	if !full {
		r.Mu.WaitingReads++
		rd.pending.Timing.Enter(timing.Clock)
	}
	r.Mu.Unlock()
	switch q := rd.pending.Request; {
	case full:
		r.endRead(rd, r.Refuse.Overloaded(q, "reads wait for commits that are not to be seen yet"))
	case r.heldReads.Hold(rd.seen, heldRead{rd, r}):
		r.Node.Metrics.Reads.Held.Inc()
	default:
		r.WaitsNoMore(1)
		r.endRead(rd, r.Refuse.Closed(q))
	}
	return true
}
