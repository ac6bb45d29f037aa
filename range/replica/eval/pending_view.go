package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
)

// pendingView shows an evaluation the pending writes of its replica.
type pendingView struct{ e *evaluation }

// Newest implements command.Pending.
func (v pendingView) Newest(key []byte) (version mvcc.Version, sequence, applied uint64) {
	r := v.e.r
	if hook := r.Node.Hooks.Read; hook != nil {
		hook()
	}
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if w := r.Mu.Pending.Newest(machine.Text(key)); w != nil {
		return w.Version(), w.Sequence, 0
	}
	return mvcc.Version{}, 0, r.Mu.Applied.Index
}

// Find implements command.Pending.
func (v pendingView) Find(key []byte, above hlc.Timestamp, request mvcc.RequestID) (
	own command.Replayed, applied uint64) {
	r := v.e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if w := r.Mu.Pending.Find(machine.Text(key), above, request); w != nil {
		own = command.Replayed{Found: true, Timestamp: w.Timestamp, Sequence: w.Sequence,
			CommitWait: w.CommitWait, Value: w.Value}
		if before := w.Older(); before != nil {
			version := before.Version()
			own.BeforeKnown, own.WasLive = true, version.LiveAt(w.Timestamp)
			if before.CommitWait {
				own.Before = before.Timestamp
			}
		}
	}
	return own, r.Mu.Applied.Index
}

// Recent implements command.Pending.
func (v pendingView) Recent(key []byte, until hlc.Timestamp) (version mvcc.Version, expires,
	ok bool) {
	r := v.e.r
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if r.Mu.Pending.Newest(machine.Text(key)) != nil || !r.Mu.Leadership.Is(v.e.epoch) {
		return mvcc.Version{}, false, false
	}
	known, ok := r.recent.Find(machine.Text(key))
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
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if ts.LessEq(r.Mu.Applied.Closed) {
		ts = r.Mu.Applied.Closed.Next()
	}
	return r.Mu.Cache.Above(key, ts)
}
