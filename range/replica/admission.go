package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Linearisable reads whose data comes from a replica that does not lead.
//
// A client asks the leader to admit a read: to take it in as one of its own, all the way up to
// where the engine would be read. It proves its leadership, chooses the timestamp T, enters T into
// the timestamp cache, and waits for the writes in flight and the locks at or below T as for any
// read (read.go). Then it reads nothing, and answers with T, and with the index that it has
// applied. The client sends that admission with the read to another replica of the partition, which
// reads at T when it has applied the log up to the index.
//
// INVARIANT: what the other replica reads is what the leader would have. When the leader has a read
// go to the engine, what is read is the state at T for ever: that is what makes its own reads
// right. All of that state that there is, is in the log up to the index, for it is applied at the
// leader. So a replica that has applied as much finds it, whatever else it has applied since, and
// whichever replica leads by then. Two things can take it away, and both are looked at after the
// engine was read, as always: the garbage collection threshold, and a change of the partition's
// span, which changes its generation.
//
// So the other replica goes by no lock. One that was prepared at or below T is of a transaction
// that the leader knows not to commit there: it was told to commit above, or is aborted; or else
// the leader has waited until the lock was a version, which lies before the index. One that comes
// behind the index was prepared above T, as the timestamp cache says.
//
// What is uncertain for the leader is so for the other replica: versions above T, up to the limit
// that the leader has found, and expiries there. For a read of the latest state these are the
// expiries that reads of earlier leaders may have been above. The leader would move the read above
// one of those; the other replica refuses it, and the leader reads.
//
// A follower learns what is committed with the entries that come next, or with a heartbeat, which
// may be a while: nothing else asks for it sooner (package group). So a leader that admits a read
// at an index has all of them told, once for as many reads as come meanwhile (announcement).
//
// The other replica promises nothing, and an admission that no leader has given harms only its
// sender.

// answerAdmission answers a read that a leader has taken in, where the engine would be read.
func (r *Replica) answerAdmission(rd *read) {
	q := rd.pending.Request
	r.mu.Lock()
	index, until := r.mu.applied.Index, rd.limit
	announce := r.mu.reads.announced.want(index)
	if r.mu.applied.Stats.Expiring > 0 {
		until = hlc.Max(until, rd.expiries)
	}
	r.mu.Unlock()
	if announce {
		r.announce()
	}
	if refusal := r.TooOld(q, rd.timestamp); refusal != nil {
		if rd.latest() && rd.restarts < maxRestarts {
			r.restart(rd)
			return
		}
		r.endRead(rd, refusal)
		return
	}
	// INVARIANT: after the index was taken: that is one of the log of the request's generation, or
	// the read is refused.
	if moved := r.moved(rd); moved != nil {
		r.endRead(rd, moved)
		return
	}
	response := &kvpb.Response{Id: q.Id,
		Admission: &kvpb.Admission{At: wire.ToTimestamp(rd.timestamp), Index: index}}
	if rd.timestamp.Less(until) {
		response.Admission.UncertainUntil = wire.ToTimestamp(until)
	}
	r.node.Metrics.Reads.Admissions.Inc()
	r.node.Tell(response, rd.timestamp)
	r.endRead(rd, response)
}

// placeAdmittedLocked places a read that a leader has admitted. It returns false if it has to wait.
func (r *Replica) placeAdmittedLocked(rd *read) bool {
	rd.timestamp = rd.at
	rd.limit, rd.expiries = rd.uncertainUntil, rd.uncertainUntil
	return rd.closed.index <= r.mu.applied.Index
}

// announcement is what the other replicas have been told to be committed, for reads that were
// admitted. Replica.mu guards it.
type announcement struct {
	// told is up to where, and wanted up to where they are to be told. busy: they are being told.
	told, wanted uint64
	busy         bool
}

// want has the others told up to an index. It returns true if that is to be done now.
func (a *announcement) want(index uint64) (now bool) {
	a.wanted = max(a.wanted, index)
	return a.next()
}

// next says that the others are to be told now.
func (a *announcement) next() bool {
	if a.busy || a.wanted <= a.told {
		return false
	}
	a.busy, a.told = true, a.wanted
	return true
}

// over notes that the others have been told; err: they may not have been, which does no harm.
func (a *announcement) over(err error) (again bool) {
	a.busy = false
	if err != nil {
		a.wanted = a.told
	}
	return a.next()
}

// announce tells the other replicas what is committed: the question for a read index brings it.
func (r *Replica) announce() {
	r.group.ReadIndex(func(err error) {
		r.mu.Lock()
		again := r.mu.reads.announced.over(err)
		r.mu.Unlock()
		if again && !r.goActive(r.announce) {
			r.mu.Lock()
			r.mu.reads.announced.busy = false
			r.mu.Unlock()
		}
	})
}
