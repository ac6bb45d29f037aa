package replica

import (
	"bytes"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// compareAndSwap writes if the key is as expected. A failure is an answer by reading: it waits for the version that
// decided it, if that is in flight.
func (e *evaluation) compareAndSwap(w *write, c *kvpb.CompareAndSwapRequest) error {
	id := w.pending.Request.Id
	p, err := e.prior(c.Key)
	if err != nil {
		return err
	}
	// A first attempt that succeeded would make the expectation false: look for it before comparing.
	own, err := e.duplicate(w, c.Key, &p)
	if err != nil {
		return err
	}
	if own.found {
		e.answerDuplicate(w, swappedResponse(id, own.timestamp), own.sequence)
		return nil
	}
	e.holdSeen(&p)
	if !asExpected(c, &p) {
		m := &kvpb.CompareAndSwapResponse{Found: p.live()}
		if m.Found {
			m.Current, m.CurrentVersion = bytes.Clone(p.Value), rpc.ToTimestamp(p.Timestamp)
		}
		e.answerNothingDone(w, &kvpb.Response{Id: id, Result: &kvpb.Response_CompareAndSwap{CompareAndSwap: m}}, p.sequence)
		return nil
	}
	ts, ok, err := e.write(w, effect{userKey: c.Key, value: c.NewValue, tombstone: c.Delete, wasLive: p.live(), priorTimestamp: p.Timestamp})
	return e.wrote(w, ok, err, func() *kvpb.Response { return swappedResponse(id, ts) })
}

// asExpected compares. A key that was deleted is absent: its tombstone is nobody's expected version.
func asExpected(c *kvpb.CompareAndSwapRequest, p *prior) bool {
	switch x := c.Expected.(type) {
	case *kvpb.CompareAndSwapRequest_Absent:
		return !p.live()
	case *kvpb.CompareAndSwapRequest_Value:
		return p.live() && bytes.Equal(p.Value, x.Value)
	case *kvpb.CompareAndSwapRequest_Version:
		return p.live() && p.Timestamp == rpc.FromTimestamp(x.Version)
	}
	return false
}
