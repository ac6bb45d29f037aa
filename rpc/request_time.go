package rpc

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Reading the clock twice for each request, and storing the time, would cost some per cent of a
// small read. So one request in timedEvery is timed. The requests of a stream are counted by
// messages, and the request to be timed is marked by the sign of its size in the map that must be
// read for each request anyway. A request that is not timed costs a comparison.

// timedEvery is the number of requests of a stream per timed one.
const timedEvery = 64

// RequestKind classifies requests for the measurement of time.
type RequestKind uint8

const (
	// RequestRead changes nothing: get, scan, count.
	RequestRead RequestKind = iota
	// RequestWrite writes outside of a transaction.
	RequestWrite
	// RequestTransaction is a step of a transaction.
	RequestTransaction
	// RequestKinds is the number of kinds.
	RequestKinds
)

// String returns the kind as a label of metrics.
func (k RequestKind) String() string { return [...]string{"read", "write", "transaction"}[k] }

// kindOf returns the kind of a request.
func kindOf(r *kvpb.Request) RequestKind {
	switch r.Command.(type) {
	case *kvpb.Request_Put, *kvpb.Request_Delete, *kvpb.Request_CompareAndSwap,
		*kvpb.Request_WriteBatch, *kvpb.Request_DeleteRange, *kvpb.Request_Increment,
		*kvpb.Request_Load:
		return RequestWrite
	case *kvpb.Request_Prepare, *kvpb.Request_Refresh, *kvpb.Request_EndTransaction,
		*kvpb.Request_Push, *kvpb.Request_HeartbeatTransaction, *kvpb.Request_Resolve:
		return RequestTransaction
	}
	return RequestRead
}

// timedRequests holds the timed requests of a stream that have no response. Guarded by outbox.mu.
type timedRequests struct {
	took func(RequestKind, time.Duration)
	// until is how many requests come before the next timed one.
	until int
	begun map[uint64]timedRequest
}

type timedRequest struct {
	at   time.Time
	kind RequestKind
}

// newTimedRequests begins at an offset that depends on the client: otherwise short streams would
// all be timed at the same request, or never.
func newTimedRequests(took func(RequestKind, time.Duration), client uint64) timedRequests {
	return timedRequests{took: took, until: int(client % timedEvery)}
}

// pick counts the requests of a message, and returns the index of the one to be timed, if there is
// one.
func (t *timedRequests) pick(requests int) (number int, ok bool) {
	if t.until >= requests {
		t.until -= requests
		return 0, false
	}
	number = t.until
	t.until = max(timedEvery-(requests-number), 0)
	return number, true
}

func (t *timedRequests) begin(r *kvpb.Request) {
	if t.begun == nil {
		t.begun = make(map[uint64]timedRequest)
	}
	t.begun[r.Id] = timedRequest{at: time.Now(), kind: kindOf(r)}
}

// end reports how long the request has taken.
func (t *timedRequests) end(id uint64) {
	one, ok := t.begun[id]
	if !ok {
		return
	}
	delete(t.begun, id)
	t.took(one.kind, time.Since(one.at))
}

// forget removes requests that are refused at once.
func (t *timedRequests) forget(requests []*kvpb.Request) {
	for _, r := range requests {
		delete(t.begun, r.Id)
	}
}
