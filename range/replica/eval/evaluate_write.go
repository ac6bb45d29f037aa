package eval

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/range/replica/machine"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// write gives the effects of one request a timestamp, above everything it must be above, and puts
// them in flight. With commit wait (e.CommitWait) the answer waits for the timestamp. write returns
// false if the request takes no effect now: the epoch is over, or it is evaluated once more
// (later).
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
		ts = hlc.Max(ts, r.Node.Clock.WaitFloor())
	}
	id := mvcc.RequestID{Client: w.pending.Client, Sequence: w.pending.Request.Sequence}
	first := e.takeSlab(len(effects))
	r.Mu.Lock()
	if !r.Mu.Leadership.Is(e.epoch) {
		r.Mu.Unlock()
		e.over = true
		return hlc.Timestamp{}, false, nil
	}
	if floor := r.FloorLocked(); ts.LessEq(floor) {
		ts = floor.Next()
	}
	for i := range effects {
		ts = r.Mu.Cache.Above(effects[i].Key, ts)
	}
	if e.tooLate(ts) {
		r.Mu.Unlock()
		return hlc.Timestamp{}, false, nil
	}
	for i := range effects {
		effects[i].CommitWait = e.CommitWait
		effects[i].Expires = effects[i].Lifetime.ExpiryOf(ts)
		f := &first[i]
		*f = proposal.Write{
			Key: machine.Text(effects[i].Key), Timestamp: ts, Request: id,
			Value: effects[i].Value, Tombstone: effects[i].Tombstone, CommitWait: e.CommitWait,
			Expires:  effects[i].Expires,
			Sequence: e.proposal.Sequence,
		}
		r.Mu.Pending.Add(f)
		e.proposal.Writes = append(e.proposal.Writes, f)
	}
	if e.OnePhase != nil {
		e.readAndReleaseLocked(e.OnePhase, ts)
	}
	r.written = hlc.Max(r.written, ts)
	if e.proposal.Lowest.IsZero() || ts.Less(e.proposal.Lowest) {
		e.proposal.Lowest = ts
	}
	r.Mu.Unlock()
	r.Node.Metrics.Writes.PendingWrites.Add(float64(len(effects)))
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

// stage puts one version into the batch, and updates the statistics.
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
		e.r.garbage.WillExpire(f.Expires)
	}
	e.delta.Add(d)
	if e.splitStats.Has(key) {
		e.proposal.Right.Add(d)
	}
	return nil
}

// checkSession checks a write's session timestamp.
func (e *evaluation) checkSession(w *write) *kvpb.Response {
	r, q := e.r, w.pending.Request
	var trusted bool
	if e.Clock, trusted = r.Node.Clock.Reading(); !trusted {
		return r.Refuse.UntrustedClock(q)
	}
	if !r.Node.CheckAhead(w.session, e.Clock) {
		return r.Refuse.SessionAhead(q, w.session)
	}
	if threshold := r.Threshold(); !w.session.IsZero() && w.session.Less(threshold) {
		return r.Refuse.SessionTooOld(q, w.session, threshold)
	}
	return nil
}
