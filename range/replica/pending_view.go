package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// pendingView is what an evaluation sees of its replica's pending writes.
type pendingView struct{ e *evaluation }

// Newest implements command.Pending.
func (v pendingView) Newest(key []byte) (version mvcc.Version, sequence, applied uint64) {
	r := v.e.r
	if hook := r.node.Hooks.Read; hook != nil {
		hook()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.mu.pending.Newest(text(key)); w != nil {
		return w.Version(), w.Sequence, 0
	}
	return mvcc.Version{}, 0, r.mu.applied.Index
}

// Find implements command.Pending.
func (v pendingView) Find(key []byte, above hlc.Timestamp, request mvcc.RequestID) (
	own command.Own, applied uint64) {
	r := v.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if w := r.mu.pending.Find(text(key), above, request); w != nil {
		own = command.Own{Found: true, Timestamp: w.Timestamp, Sequence: w.Sequence,
			CommitWait: w.CommitWait, Value: w.Value}
		if before := w.Older(); before != nil {
			version := before.Version()
			own.BeforeKnown, own.WasLive = true, version.LiveAt(w.Timestamp)
			if before.CommitWait {
				own.Before = before.Timestamp
			}
		}
	}
	return own, r.mu.applied.Index
}

// Recent implements command.Pending.
func (v pendingView) Recent(key []byte, until hlc.Timestamp) (version mvcc.Version, expires,
	ok bool) {
	r := v.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.pending.Newest(text(key)) != nil || !r.mu.leadership.Is(v.e.epoch) {
		return mvcc.Version{}, false, false
	}
	known, ok := r.mu.recent.Find(text(key))
	if !ok || until.Less(known.Timestamp) {
		return mvcc.Version{}, false, false
	}
	version = mvcc.Version{Timestamp: known.Timestamp, Kind: mvcc.KindTombstone,
		CommitWait: known.CommitWait}
	if known.Live {
		version.Kind = mvcc.KindValue
	}
	return version, known.Expires, true
}

// Above implements command.Pending.
func (v pendingView) Above(key []byte, ts hlc.Timestamp) hlc.Timestamp {
	r := v.e.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if ts.LessEq(r.mu.applied.Closed) {
		ts = r.mu.applied.Closed.Next()
	}
	return r.mu.cache.Above(key, ts)
}

// since is the timestamp above which all versions are that an attempt of the request can have
// written.
func (w *write) since(r *Replica) hlc.Timestamp {
	if w.session.IsZero() {
		return *r.threshold.Load()
	}
	return w.session
}

// answerDuplicate answers a retry. What was applied in this epoch is a fact, and needs no proof of
// leadership: it is of this term or an earlier one, and each later leader applies it before it
// serves. What was applied since may be an entry of a later leader, which has not applied it itself
// yet: then a read there could miss what is acknowledged here.
func (e *evaluation) answerDuplicate(w *write, response *kvpb.Response, sequence uint64) {
	e.r.node.Metrics.Writes.Duplicates.Inc()
	a := answer{pending: w.pending, command: w.command, response: response, hold: e.Hold}
	switch {
	case sequence == 0 && !e.inEpoch():
		e.refuse(w, e.r.refuse.NotLeader(w.pending.Request))
	case sequence == 0:
		e.ready = append(e.ready, a)
	case sequence == e.proposal.sequence:
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
		if !e.inEpoch() {
			// What was read may be what another leader has made of it since: that is no damage.
			e.refuse(w, e.r.refuse.NotLeader(w.pending.Request))
			return nil
		}
		return err
	case !ok:
		e.refuse(w, e.r.refuse.NotLeader(w.pending.Request))
		return nil
	}
	e.answerApplied(w, response())
	return nil
}
