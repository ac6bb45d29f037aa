package replica

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// TestRandomTransactionsMoments: a history of transactions in which moments are asked for, and read
// at some replica. Everything that was acknowledged before lies at or below them, and what is read
// there is the state there for ever, also where a read waits for one or two transactions at a time.
func TestRandomTransactionsMoments(t *testing.T) {
	for name, v := range map[string]variant{
		"as ever":     {moments: true},
		"one by one":  {moments: true, waitFor: 1},
		"two at once": {moments: true, holds: true, waitFor: 2},
	} {
		t.Run(name, func(t *testing.T) {
			setFlag(t, "rapid.steps", "150")
			randomTransactions(t, v)
		})
	}
}

// moment asks for a moment, and reads there at once, or asks another replica to.
func (h *transactionHistory) moment(t *rapid.T) {
	h.step++
	before := hlc.Timestamp{}
	for _, ts := range h.acknowledgedKeys {
		before = hlc.Max(before, ts)
	}
	m, reader := h.target(t), h.target(t)
	h.c.askMoment(m, func(response *kvpb.Response) {
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		if response.Error != nil || len(response.GetMergeScan().Refused) > 0 {
			return
		}
		at := response.GetMergeScan().At
		if wire.FromTimestamp(at).Less(before) {
			h.fault("the moment %s, but a write at %s was acknowledged before it was asked for",
				wireStamp(at), stamp(before))
		}
		h.answers = append(h.answers, func() {
			scan := &kvpb.Request{Id: 1, Generation: 1, Term: h.c.term,
				Command: &kvpb.Request_Scan{Scan: &kvpb.ScanRequest{At: at}}}
			h.send(reader, 0, scan, func(response *kvpb.Response) {
				if response.Error == nil {
					h.readings = append(h.readings, reading{scan, response})
				}
			})
		})
	})
	h.deliver()
}
