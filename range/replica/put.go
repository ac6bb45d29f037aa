package replica

import "github.com/tidemarkdb/tidemark/rpc/kvpb"

func (e *evaluation) put(w *write, c *kvpb.PutRequest) error {
	p, err := e.priorOfBlind(w, c.Key)
	if err != nil {
		return err
	}
	own, err := e.duplicate(w, c.Key, &p)
	if err != nil {
		return err
	}
	if own.found {
		e.answerDuplicate(w, putResponse(w.pending.Request.Id, own.timestamp), own.sequence)
		return nil
	}
	ts, ok, err := e.write(w, effect{userKey: c.Key, value: c.Value, wasLive: p.live(), priorTimestamp: p.Timestamp})
	return e.wrote(w, ok, err, func() *kvpb.Response { return putResponse(w.pending.Request.Id, ts) })
}
