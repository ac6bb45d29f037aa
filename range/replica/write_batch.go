package replica

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

// writeBatch writes several keys at one timestamp. Every operation writes a version, a deletion of an absent key too, so
// that the first key tells a retry whether the batch has been written.
func (e *evaluation) writeBatch(w *write, c *kvpb.WriteBatchRequest) error {
	effects := make([]effect, len(c.Operations))
	for i, o := range c.Operations {
		p, err := e.priorOfBlind(w, o.Key)
		if err != nil {
			return err
		}
		if i == 0 {
			own, err := e.duplicate(w, o.Key, &p)
			if err != nil {
				return err
			}
			if own.found {
				e.answerDuplicate(w, writeBatchResponse(w.pending.Request.Id, own.timestamp), own.sequence)
				return nil
			}
		}
		effects[i] = effect{userKey: o.Key, value: o.Value, tombstone: o.Delete, wasLive: p.live(), priorTimestamp: p.Timestamp}
	}
	ts, ok, err := e.write(w, effects...)
	return e.wrote(w, ok, err, func() *kvpb.Response { return writeBatchResponse(w.pending.Request.Id, ts) })
}
