package rpc

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// To read the clock twice for each request, and to note the time, would cost some per cent of what
// a small read costs. So one in timedEvery is timed: the requests of a stream are counted by
// messages, and the one that the count falls on is marked by the sign of its size in the map in
// which it has to be looked up in any case. What is not timed pays for a comparison.

// timedEvery is how many requests of a stream come to one that is timed.
const timedEvery = 64

// RequestKind is what a request is to what measures it.
type RequestKind uint8

const (
	// RequestRead changes nothing: get, scan, count.
	RequestRead RequestKind = iota
	// RequestWrite writes by itself.
	RequestWrite
	// RequestTransaction is a step of a transaction.
	RequestTransaction
	// RequestKinds is how many there are.
	RequestKinds
)

// String is the kind as a label of metrics.
func (k RequestKind) String() string { return [...]string{"read", "write", "transaction"}[k] }

// kindOf is the kind of a request.
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

// timedRequests are those of a stream that are timed and have no response. Guarded by outbox.mu.
type timedRequests struct {
	took func(RequestKind, time.Duration)
	// until is how many requests come before the next one that is timed.
	until int
	begun map[uint64]timedRequest
}

type timedRequest struct {
	at   time.Time
	kind RequestKind
}

// newTimedRequests begins at a request that depends on the client: else those of all short streams
// were timed alike, or none of them.
func newTimedRequests(took func(RequestKind, time.Duration), client uint64) timedRequests {
	return timedRequests{took: took, until: int(client % timedEvery)}
}

// pick counts the requests of a message, and gives the number of the one to be timed, if there is
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

// end tells how long the request has taken.
func (t *timedRequests) end(id uint64) {
	one, ok := t.begun[id]
	if !ok {
		return
	}
	delete(t.begun, id)
	t.took(one.kind, time.Since(one.at))
}

// forget leaves out requests that are refused at once.
func (t *timedRequests) forget(requests []*kvpb.Request) {
	for _, r := range requests {
		delete(t.begun, r.Id)
	}
}
