package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// wroteAt is wrote, with the command's answer to what was done at a timestamp.
func (e *evaluation) wroteAt(w *write, ts hlc.Timestamp, ok bool, err error) error {
	if e.later {
		return nil
	}
	return e.wrote(w, ok, err,
		func() *kvpb.Response { return e.Respond(&e.Result, w.pending.Request, ts) })
}

// write gives the effects of one request a timestamp, above everything it must be above, and puts
// them in flight. With commit wait (e.CommitWait) the answer waits for the timestamp. It returns
// false if nothing of it has an effect: the epoch is over, or it is evaluated again (later).
func (e *evaluation) write(w *write, effects ...command.WriteOp) (hlc.Timestamp, bool, error) {
	r := e.r
	ts := hlc.Max(e.Clock, e.AtLeast)
	ts = hlc.Max(ts, w.session.Next())
	for i := range effects {
		ts = hlc.Max(ts, effects[i].Prior.Next())
	}
	if e.OnePhase != nil {
		ts = hlc.Max(ts, e.OnePhase.Floor)
	}
	if e.CommitWait {
		ts = hlc.Max(ts, r.node.Clock.WaitFloor())
	}
	id := mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
	first := e.takeSlab(len(effects))
	r.mu.Lock()
	if !r.mu.leadership.Is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return hlc.Timestamp{}, false, nil
	}
	if floor := r.floorLocked(); ts.LessEq(floor) {
		ts = floor.Next()
	}
	for i := range effects {
		ts = r.mu.cache.Above(effects[i].Key, ts)
	}
	if e.tooLate(ts) {
		r.mu.Unlock()
		return hlc.Timestamp{}, false, nil
	}
	for i := range effects {
		effects[i].CommitWait = e.CommitWait
		effects[i].Expires = effects[i].Lifetime.ExpiryOf(ts)
		f := &first[i]
		*f = proposal.Write{
			Key: text(effects[i].Key), Timestamp: ts, Request: id,
			Value: effects[i].Value, Tombstone: effects[i].Tombstone, CommitWait: e.CommitWait,
			Expires:  effects[i].Expires,
			Sequence: e.proposal.sequence,
		}
		r.mu.pending.Add(f)
		e.proposal.writes = append(e.proposal.writes, f)
	}
	if e.OnePhase != nil {
		e.readAndReleaseLocked(e.OnePhase, ts)
	}
	r.mu.written = hlc.Max(r.mu.written, ts)
	if e.proposal.lowest.IsZero() || ts.Less(e.proposal.lowest) {
		e.proposal.lowest = ts
	}
	r.mu.Unlock()
	r.node.Metrics.Writes.PendingWrites.Add(float64(len(effects)))
	e.highest = hlc.Max(e.highest, ts)
	e.HoldFor(e.CommitWait, ts)
	e.openBatch()
	for i := range effects {
		if err := e.stage(&effects[i], ts, id); err != nil {
			return ts, true, err
		}
	}
	return ts, true, nil
}

// openBatch makes sure that there is a batch.
func (e *evaluation) openBatch() {
	if e.batch == nil {
		e.batch = e.r.state.NewBatch()
	}
}

// transactional makes the entry one that may change locks and records.
func (e *evaluation) transactional() {
	e.openBatch()
	e.kind, e.proposal.effects = proposal.KindTransaction, true
}

// takeSlab returns n pending writes to be filled.
func (e *evaluation) takeSlab(n int) []proposal.Write {
	if n > len(e.slab) {
		return make([]proposal.Write, n)
	}
	writes := e.slab[:n:n]
	e.slab = e.slab[n:]
	return writes
}

// stage puts one version into the batch, and counts it.
func (e *evaluation) stage(f *command.WriteOp, ts hlc.Timestamp, id mvcc.RequestID) error {
	key := e.InternalKey(f.Key)
	h := mvcc.Header{Kind: mvcc.KindValue, Request: id, CommitWait: f.CommitWait, Expires: f.Expires}
	if f.Tombstone {
		h.Kind = mvcc.KindTombstone
	}
	if err := mvcc.Write(e.batch, key, ts, h, f.Value); err != nil {
		return err
	}
	d := proposal.Delta{Versions: 1, Bytes: int64(keys.VersionedKeySize(key, ts) + len(f.Value))}
	if f.WasLive {
		d.LiveKeys--
	}
	if !f.Tombstone {
		d.LiveKeys++
	}
	if f.Expires != 0 {
		d.Expiring++
		e.r.gc.WillExpire(f.Expires)
	}
	e.delta.Add(d)
	if e.splitStats.Has(key) {
		e.proposal.right.Add(d)
	}
	return nil
}

// checkSession looks at a write's session timestamp.
func (e *evaluation) checkSession(w *write) *kvpb.Response {
	r, q := e.r, w.pending.Request
	var trusted bool
	if e.Clock, trusted = r.node.Clock.Reading(); !trusted {
		return r.refuse.UntrustedClock(q)
	}
	if !r.node.CheckAhead(w.session, e.Clock) {
		return r.refuse.SessionAhead(q, w.session)
	}
	if threshold := *r.threshold.Load(); !w.session.IsZero() && w.session.Less(threshold) {
		return r.refuse.SessionTooOld(q, w.session, threshold)
	}
	return nil
}
