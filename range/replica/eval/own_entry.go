package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// OwnEntry is the outcome of an entry that this replica has proposed.
type OwnEntry struct {
	Term, Sequence uint64
	Accepted       bool
	// Times are those of the log entry, up to the begin of its application.
	Times group.Times
	// Versions are the versions that the entry wrote, if it is a transaction's.
	Versions []OwnVersion
}

// OwnVersion is a version of a user key that an entry wrote.
type OwnVersion struct {
	Key string
	proposal.Known
}

// OwnAppliedLocked removes an entry that this replica has proposed from those in flight. The entry
// can be read from the engine. It is returned, since its answers are due; nil if it was given up.
func (r *Evaluator) OwnAppliedLocked(end *Ending, o *OwnEntry) *machine.Entry {
	if !r.Mu.Leadership.IsLeader || o.Term != r.Mu.Leadership.Term {
		return nil
	}
	r.Mu.Leadership.CameBack(o.Sequence)
	if len(r.Mu.InFlight) == 0 || o.Sequence < r.Mu.InFlight[0].Sequence {
		return nil // the entry was given up
	}
	first := r.Mu.InFlight[0]
	first.Log = o.Times
	if !o.Accepted || o.Sequence != first.Sequence {
		// An earlier entry was lost, or this entry was evaluated on top of a lost one: no entry in
		// flight will have an effect.
		r.GiveUpLocked(end, NotRun)
		return nil
	}
	r.Mu.RemoveFirst()
	if r.splitStats != nil {
		r.splitStats.Applied(first.Right)
	}
	r.Mu.Pending.Remove(first.Writes)
	for _, w := range first.Writes {
		r.recent.Note(w.Key,
			proposal.Known{Timestamp: w.Timestamp, Live: !w.Tombstone, CommitWait: w.CommitWait,
				Expires: w.Expires != 0})
	}
	// Only of entries of this epoch: there may be newer versions of the keys of earlier entries,
	// which this epoch has not seen.
	for _, v := range o.Versions {
		r.recent.Note(v.Key, v.Known)
	}
	if first.Load != nil || first.Sole {
		// INVARIANT: Recent knows the newest version of each of its keys. Versions that were
		// loaded, or have expired and are removed, are not noted one by one.
		r.recent.Reset()
	}
	r.records.applied(first)
	for _, l := range first.Lets {
		if r.Mu.Locks.Has(l) {
			r.RequeueLocked(r.Mu.Locks.Release(l))
		}
	}
	r.StandLocked(first)
	r.Mu.WaitingReads -= len(first.Waiters)
	r.Node.Metrics.Writes.Proposals.Dec()
	r.Node.Metrics.Writes.PendingWrites.Sub(float64(len(first.Writes)))
	return first
}

// Answer answers the requests that waited for a proposal.
func (r *Evaluator) Answer(p *machine.Entry, highest hlc.Timestamp) {
	if len(p.Answers) > 0 {
		reading, trusted := r.Node.Clock.Reading()
		now := wire.ToTimestamp(hlc.Max(reading, highest))
		for i := range p.Answers {
			a := &p.Answers[i]
			if a.Done != nil {
				a.Done(nil)
				continue
			}
			// All clients share the response, which is not changed.
			a.Response.Now, a.Response.ClockUntrusted = now, !trusted
			p.Pass(a.Pending.Timing)
			r.Send(a)
		}
	}
	for _, w := range p.Waiters {
		w.Resume()
	}
}
