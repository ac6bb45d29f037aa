package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// OwnEntry is what came of one of this replica's own entries.
type OwnEntry struct {
	Term, Sequence uint64
	Accepted       bool
	// Versions are what it wrote, if it is of transactions.
	Versions []OwnVersion
}

// OwnVersion is a version of a user key that an entry wrote.
type OwnVersion struct {
	Key string
	proposal.Known
}

// OwnAppliedLocked takes an entry of this replica's own, which can be read from the engine, out of
// what is in flight. It returns the entry, whose answers are due; nil if it was given up.
func (r *Evaluator) OwnAppliedLocked(end *Ending, o *OwnEntry) *machine.Entry {
	if !r.Mu.Leadership.IsLeader || o.Term != r.Mu.Leadership.Term {
		return nil
	}
	r.Mu.Leadership.CameBack(o.Sequence)
	if len(r.Mu.InFlight) == 0 || o.Sequence < r.Mu.InFlight[0].Sequence {
		return nil // given up
	}
	first := r.Mu.InFlight[0]
	if !o.Accepted || o.Sequence != first.Sequence {
		// One was lost before this one, or this one was evaluated on top of one that was: none that
		// is in flight will have an effect.
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
	// Not of entries of earlier epochs: there may be newer versions of their keys, which this one has
	// not seen.
	for _, v := range o.Versions {
		r.recent.Note(v.Key, v.Known)
	}
	if first.Load != nil || first.Sole {
		// INVARIANT: it knows the newest version of each key that it has: those that were loaded, or have
		// expired and are removed, are not told one by one.
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

// Answer answers what waited for a proposal.
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
			// All share it: a response is not changed.
			a.Response.Now, a.Response.ClockUntrusted = now, !trusted
			r.Send(a)
		}
	}
	for _, w := range p.Waiters {
		w.Resume()
	}
}
