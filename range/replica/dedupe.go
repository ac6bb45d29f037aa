package replica

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// A retried request takes effect at most once (DESIGN invariant 9), because the version history of its key records
// what was done: each version carries the id of the request that wrote it.
//
// All attempts of a request carry the same session timestamp, and each gives its version a timestamp above that. So a later
// attempt looks through the key's versions above the session's timestamp, newest first. In the common case the newest version
// is not above it, and the one look-up that every write makes anyway decides.
//
// Versions that overwrote each other at or below the garbage collection threshold may be gone, and the record with them.
// A session older than the threshold is therefore refused (checkSession). A session of zero is a client's that has seen
// nothing yet; all versions above the threshold are looked through for it, which is complete unless its request is
// older than the collection window. (Clients avoid that by asking for Now first.)
//
// An attempt that is late, and comes when a later one has been answered, meets the other rules: the term it names is over,
// or it finds the version; or the stream that it came on was superseded before it was read (Hello.stream). One that was read before, and has
// waited for a lock since, finds no version if the later one was answered that there was nothing to do: that one has ended it (concurrency/attempts.go). In the
// queue the earlier one comes first, and what it has in flight is found among the pending writes.

// ownVersion is the version that an earlier attempt of a request wrote.
type ownVersion struct {
	found     bool
	timestamp hlc.Timestamp
	// sequence is of the proposal that carries it; 0 if it is applied.
	sequence uint64
	// waits: it was written with commit wait.
	waits bool
	// beforeKnown says that wasLive is what the version before it was; it was in flight too.
	beforeKnown, wasLive bool
	// before is the timestamp of the version before it, if that has commit wait and was in flight too.
	before hlc.Timestamp
}

// since is the timestamp above which all versions are that an attempt of the request can have written.
func (w *write) since(r *Replica) hlc.Timestamp {
	if w.session.IsZero() {
		return *r.threshold.Load()
	}
	return w.session
}

// duplicate looks for a version of the key that the request wrote itself, and has the answer wait if that one has commit wait. p is the key's
// newest version.
func (e *evaluation) duplicate(w *write, userKey []byte, p *prior) (ownVersion, error) {
	r := e.r
	after := w.since(r)
	if !p.found || p.Timestamp.LessEq(after) {
		return ownVersion{}, nil
	}
	id := mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
	if p.sequence != 0 {
		own, index := e.duplicateInFlight(userKey, after, id)
		if own.found {
			e.holdFor(own.waits, own.timestamp)
			return own, nil
		}
		// What was in flight a moment ago and is not now, is in the engine as of this index.
		if err := e.refresh(index); err != nil {
			return ownVersion{}, err
		}
	}
	// The getter moves on, and the value of p may lie in its memory.
	p.Value = bytes.Clone(p.Value)
	v, found, err := e.getter.FindRequest(e.internalKey(userKey), after, id)
	e.holdFor(found && v.Waits, v.Timestamp)
	return ownVersion{found: found, timestamp: v.Timestamp, waits: v.Waits}, err
}

// duplicateInFlight looks through what is in flight, and returns the applied index at that moment.
func (e *evaluation) duplicateInFlight(userKey []byte, after hlc.Timestamp, id mvcc.RequestID) (own ownVersion, index uint64) {
	r := e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.mu.pending.Find(text(userKey), after, id); w != nil {
		own = ownVersion{found: true, timestamp: w.Timestamp, sequence: w.Sequence, waits: w.CommitWait}
		if before := w.Older(); before != nil {
			own.beforeKnown, own.wasLive = true, !before.Tombstone
			if before.CommitWait {
				own.before = before.Timestamp
			}
		}
	}
	return own, r.mu.applied.index
}

// existedBefore says whether the key had a value before the request's own version. The version before it cannot have
// been collected: the own one is above the threshold, so nothing at or below the threshold shadows its predecessor, but
// for a tombstone. The answer to the write at hand tells of it.
func (e *evaluation) existedBefore(userKey []byte, own ownVersion) (bool, error) {
	if own.beforeKnown {
		e.holdFor(true, own.before)
		return own.wasLive, nil
	}
	v, found, err := mvcc.Get(e.r.state, e.internalKey(userKey), own.timestamp.Prev())
	e.holdFor(found && v.Waits, v.Timestamp)
	return found && v.Kind == mvcc.KindValue, err
}

// answerDuplicate answers a retry. What is applied is a fact, and needs no proof of leadership.
func (e *evaluation) answerDuplicate(w *write, response *kvpb.Response, sequence uint64) {
	e.r.node.Metrics.duplicates.Inc()
	a := answer{pending: w.pending, command: w.command, response: response, hold: e.hold}
	switch sequence {
	case 0:
		e.ready = append(e.ready, a)
	case e.proposal.sequence:
		e.proposal.answers = append(e.proposal.answers, a)
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
		if !e.reigns() {
			// What was read may be what another leader has made of it since: that is no damage.
			e.refuse(w, e.r.notLeader(w.pending.Request))
			return nil
		}
		return err
	case !ok:
		e.refuse(w, e.r.notLeader(w.pending.Request))
		return nil
	}
	e.answerApplied(w, response())
	return nil
}
