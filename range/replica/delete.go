package replica

import (
	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// delete writes a tombstone if the key has any version, even if that is a tombstone: it carries the request id. A key without
// any version needs no record: a retry that finds one finds it put there later, and deletes that. (An attempt that comes to be evaluated
// after its retry was answered so is not carried out: concurrency/attempts.go.)
func (e *evaluation) delete(w *write, c *kvpb.DeleteRequest) error {
	id := w.pending.Request.Id
	p, err := e.priorOfBlind(w, c.Key)
	if err != nil {
		return err
	}
	if !p.found {
		e.answerNothingDone(w, deleteResponse(id, false, hlc.Timestamp{}), 0)
		return nil
	}
	own, err := e.duplicate(w, c.Key, &p)
	if err != nil {
		return err
	}
	if own.found {
		existed, err := e.existedBefore(c.Key, own)
		if err != nil {
			return err
		}
		e.answerDuplicate(w, deleteResponse(id, existed, own.timestamp), own.sequence)
		return nil
	}
	e.holdSeen(&p) // the answer tells of it
	existed := p.live()
	ts, ok, err := e.write(w, effect{userKey: c.Key, tombstone: true, wasLive: existed, priorTimestamp: p.Timestamp})
	return e.wrote(w, ok, err, func() *kvpb.Response { return deleteResponse(id, existed, ts) })
}
