package replica

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

// The partition that holds a transaction's anchor is its coordinator. What it is asked is evaluated in the queue, one after the other:
// the rules are package txn's, and are given the record as it will be when what is in flight is applied. An answer is sent when
// everything that it rests on is applied.

// record is a transaction's record as evaluation sees it: in flight, then in the engine; nil if there is none. sequence is of the
// proposal that carries it, 0 if that is applied.
func (e *evaluation) record(of txn.Info) (record *txn.Record, sequence uint64, err error) {
	r := e.r
	r.mu.Lock()
	f, ok := r.mu.records.proposed[of.ID]
	r.mu.Unlock()
	if ok {
		return f.record, f.sequence, nil
	}
	record, err = r.storedRecord(txn.RecordKey(e.InternalKey(of.Anchor), of.ID))
	return record, 0, err
}

// storedRecord reads a transaction record; nil if there is none.
func (r *Replica) storedRecord(key []byte) (*txn.Record, error) {
	value, closer, err := r.state.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer closer.Close()
	record, err := txn.DecodeRecord(value)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", errRecord, keys.PrettyState(key), err)
	}
	return &record, nil
}

// setRecord puts a record in flight and into the batch. It returns false if the epoch is over.
//
// INVARIANT: what is proposed is what every replica takes: one that cannot apply an entry is failed
// for good, and so are all others.
func (e *evaluation) setRecord(of txn.Info, record *txn.Record) (bool, error) {
	r := e.r
	if err := record.Validate(); err != nil {
		return false, fmt.Errorf("the record of transaction %s is not written: %w", of.ID, err)
	}
	e.transactional()
	r.mu.Lock()
	if !r.mu.leadership.is(e.epoch) {
		r.mu.Unlock()
		e.over = true
		return false, nil
	}
	r.mu.records.propose(of.ID, record, e.proposal.sequence)
	e.proposal.records = append(e.proposal.records, of.ID)
	r.mu.Unlock()
	if record.State == kvpb.TransactionState_COMMITTED {
		e.highest = hlc.Max(e.highest, record.Timestamp)
	}
	return true, e.batch.Set(txn.RecordKey(e.InternalKey(of.Anchor), of.ID), record.Append(nil), nil)
}

// present is what the rules are told of time, and of limits. It is after the request's timestamps
// were merged into the clock.
func (e *evaluation) present() txn.Present {
	clock := e.r.node.Clock
	return txn.Present{Physical: clock.Physical(), Since: e.livenessFloor, Now: clock.Now(), Threshold: *e.r.threshold.Load(),
		Limits: e.r.ownLimits()}
}

func (e *evaluation) endTransaction(w *write, c *kvpb.EndTransactionRequest) error {
	r, q, end := e.r, w.pending.Request, w.x.End
	switch started := end.Transaction.Started; {
	case !r.checkAhead(end.Timestamp, e.Clock):
		e.refuse(w, r.fromTheFuture(q, end.Timestamp))
		return nil
	case e.isFuture(started):
		e.refuse(w, r.fromTheFuture(q, started))
		return nil
	}
	record, sequence, err := e.record(end.Transaction)
	if err != nil {
		return err
	}
	present := e.present()
	present.Locked = end.Requested && e.holdsLock(end.Transaction.ID)
	d := txn.DecideEnd(record, end, present)
	if end.Requested && d.Record != nil {
		r.mu.Lock()
		r.mu.locks.RememberAborted(end.Transaction)
		r.mu.Unlock()
	}
	if c.GetHoldTimestamp() && d.Refused != nil && d.Refused.Code == kvpb.ErrorCode_TRANSACTION_PUSHED {
		r.mu.Lock()
		r.mu.locks.HoldTimestamp(end.Transaction.ID, r.lockNow())
		r.mu.Unlock()
	}
	return e.decide(w, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_EndTransaction{
			EndTransaction: &kvpb.EndTransactionResponse{Status: s, Unknown: d.Unknown}}}
	})
}

func (e *evaluation) push(w *write, c *kvpb.PushRequest) error {
	r, q, push := e.r, w.pending.Request, w.x.Push
	switch started := push.Pushee.Started; {
	case !r.checkAhead(push.Above, e.Clock):
		e.refuse(w, r.fromTheFuture(q, push.Above))
		return nil
	case e.isFuture(started):
		e.refuse(w, r.fromTheFuture(q, started))
		return nil
	}
	if refusal := e.unbelievablePusher(w, push); refusal != nil {
		e.refuse(w, refusal)
		return nil
	}
	record, sequence, err := e.record(push.Pushee)
	if err != nil {
		return err
	}
	present := e.present()
	r.mu.Lock()
	if c.GetAwaited() && !record.Decided() {
		r.mu.locks.Want(push.Pushee.ID)
	}
	present.Held = r.mu.locks.TimestampHeld(push.Pushee.ID, r.lockNow())
	r.mu.Unlock()
	present.Limits = present.Limits.Stricter(r.node.limitsOf(push.Locked))
	d := txn.DecidePush(record, push, present)
	return e.decide(w, record, sequence, d, func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_Push{Push: &kvpb.PushResponse{Status: s}}}
	})
}

func (e *evaluation) heartbeat(w *write) error {
	r, of, q := e.r, w.transaction(), w.pending.Request
	if e.isFuture(of.Started) {
		e.refuse(w, r.fromTheFuture(q, of.Started))
		return nil
	}
	record, sequence, err := e.record(of)
	if err != nil {
		return err
	}
	r.mu.Lock()
	wanted := r.mu.locks.Wanted(of.ID)
	r.mu.Unlock()
	return e.decide(w, record, sequence, txn.DecideHeartbeat(record, w.x.Heartbeat, e.present()), func(s *kvpb.TransactionStatus) *kvpb.Response {
		return &kvpb.Response{Id: q.Id, Result: &kvpb.Response_HeartbeatTransaction{
			HeartbeatTransaction: &kvpb.HeartbeatTransactionResponse{Status: s, Wanted: wanted}}}
	})
}

// decide does what was decided, and answers when that is applied. before is the record on which it was decided, and sequence of the
// proposal that carries that.
func (e *evaluation) decide(w *write, before *txn.Record, sequence uint64, d txn.Decision, answer func(*kvpb.TransactionStatus) *kvpb.Response) error {
	r := e.r
	if d.Refused != nil {
		refusal := &kvpb.Response{Id: w.pending.Request.Id, Error: d.Refused.Proto()}
		e.answerRead(w, refusal, sequence)
		return nil
	}
	response := answer(d.Status)
	if after := cmp.Or(d.Record, before); after != nil {
		// Whoever asks, and whoever leads by now.
		e.HoldFor(after.Waits, after.Timestamp)
	}
	if d.Record == nil {
		e.answerRead(w, response, sequence)
		return nil
	}
	ok, err := e.setRecord(w.transaction(), d.Record)
	if err == nil && ok && !before.Decided() && d.Record.Decided() {
		if d.Record.State == kvpb.TransactionState_COMMITTED {
			r.node.Metrics.twoPhase.Inc()
		} else if reason := int(d.Record.Reason); reason < len(r.node.Metrics.aborts) {
			r.node.Metrics.aborts[reason].Inc()
		}
		if d.Record.State == kvpb.TransactionState_ABORTED {
			e.wakeAborted(w.transaction().ID)
		}
	}
	return e.wrote(w, ok, err, func() *kvpb.Response { return response })
}
