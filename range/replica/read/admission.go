package read

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// Linearisable reads whose data comes from a replica that does not lead.
//
// A client asks the leader to admit a read: the leader takes the read in as one of its own, all the
// way up to where it would read the engine. It proves its leadership, chooses the timestamp T,
// enters T into the timestamp cache, and waits for the writes in flight and the locks at or below T
// as for any read (read.go). Then it reads nothing, and answers with T and with the index that it
// has applied. The client sends this admission with the read to another replica of the partition,
// which reads at T when it has applied the log up to the index.
//
// INVARIANT: the other replica reads what the leader would have read. When a leader's own read goes
// to the engine, it reads the state at T, which never changes again: that is what makes its own
// reads right. All of that state is in the log up to the index, since the leader has applied it. So
// a replica that has applied the log that far finds it, whatever it has applied since, and
// whichever replica leads by then. Two things can take the state away, and both are checked after
// the engine was read, as always: the garbage collection threshold, and a change of the partition's
// span, which changes its generation.
//
// So the other replica ignores locks. A lock that was prepared at or below T belongs to a
// transaction that the leader knows not to commit there: it was told to commit above T, or is
// aborted. Otherwise the leader has waited until the lock was a version, which lies before the
// index. A lock after the index was prepared above T, because of the timestamp cache.
//
// What is uncertain for the leader is uncertain for the other replica: versions above T, up to the
// limit that the leader has found, and expiries there. For a read of the latest state these are the
// expiries that reads of earlier leaders may have been above. The leader would move the read above
// such an expiry; the other replica refuses the read, and the leader serves it.
//
// A follower learns what is committed with the next entries, or with a heartbeat, which may take a
// while: nothing else asks for it sooner (package group). So a leader that admits a read at an
// index has all followers told, once for all reads that come meanwhile (announcement).
//
// The other replica promises nothing, and an admission that no leader has given harms only its
// sender.

// answerAdmission answers a read that a leader has taken in, instead of reading the engine.
func (r *Reader) answerAdmission(rd *read) {
	q := rd.pending.Request
	r.Mu.Lock()
	index, until := r.Mu.Applied.Index, rd.limit
	announce := r.reads.announced.want(index)
	if r.Mu.Applied.Stats.Expiring > 0 {
		until = hlc.Max(until, rd.expiries)
	}
	r.Mu.Unlock()
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
	// INVARIANT: this check comes after the index was taken: either the index is of the log of the
	// request's generation, or the read is refused.
	if moved := r.moved(rd); moved != nil {
		r.endRead(rd, moved)
		return
	}
	response := &kvpb.Response{Id: q.Id,
		Admission: &kvpb.Admission{At: wire.ToTimestamp(rd.timestamp), Index: index}}
	if rd.timestamp.Less(until) {
		response.Admission.UncertainUntil = wire.ToTimestamp(until)
	}
	r.Node.Metrics.Reads.Admissions.Inc()
	r.Node.Tell(response, rd.timestamp)
	r.endRead(rd, response)
}

// placeAdmittedLocked places a read that a leader has admitted. It returns false if it has to wait.
func (r *Reader) placeAdmittedLocked(rd *read) bool {
	rd.timestamp = rd.at
	rd.limit, rd.expiries = rd.uncertainUntil, rd.uncertainUntil
	return rd.closed.index <= r.Mu.Applied.Index
}

// announce tells the other replicas what is committed: asking for a read index brings it to them.
func (r *Reader) announce() {
	r.Group.ReadIndex(func(err error) {
		r.Mu.Lock()
		again := r.reads.announced.over(err)
		r.Mu.Unlock()
		if again && !r.GoActive(r.announce) {
			r.Mu.Lock()
			r.reads.announced.busy = false
			r.Mu.Unlock()
		}
	})
}
