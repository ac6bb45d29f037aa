package txn

import (
	"time"

	"github.com/tidemarkdb/tidemark/rpc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

const (
	// Abandoned is for how long nothing may be heard of a pending transaction before whoever meets it aborts it.
	Abandoned = 3 * time.Second
	// HeartbeatInterval is how often a client says that it lives, once it has laid a lock.
	HeartbeatInterval = time.Second
)

// Status is how the record says that the transaction stands. A nil record is PENDING without a bound.
func (r *Record) Status() *kvpb.TransactionStatus {
	if r == nil {
		return &kvpb.TransactionStatus{}
	}
	return &kvpb.TransactionStatus{State: r.State, Timestamp: rpc.ToTimestamp(r.Timestamp), Reason: r.Reason}
}

// Pusher brings pushes to the coordinators of the transactions that are in the way.
type Pusher interface {
	// Push sends a push to the coordinator of its pushee and never blocks. It calls done exactly once, from any goroutine and
	// perhaps before it returns (so the caller must hold no lock that done takes), with how the transaction stands at some moment
	// after the call, or with why that cannot be told now. The request must not be changed afterwards.
	Push(q *kvpb.PushRequest, done func(*kvpb.TransactionStatus, error))
}
