package txn

import (
	"context"
	"errors"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

const (
	// Abandoned is for how long nothing may be heard of a pending transaction before a request that
	// meets it aborts it.
	Abandoned = 3 * time.Second
	// HeartbeatInterval is how often a client says that it lives, once it has acquired a lock.
	HeartbeatInterval = time.Second
	// Orphaned is for how long a coordinator must be known to be gone with its keyspace before
	// requests that meet the transaction's locks take it for aborted. Within RemovalGrace, which is
	// shorter, the replicas that are destroyed with the keyspace tell what they know of commits.
	Orphaned     = time.Minute
	RemovalGrace = 45 * time.Second
)

// ErrCoordinatorGone is what becomes of a push when the keyspace of the pushee's anchor was
// dropped.
var ErrCoordinatorGone = errors.New("the keyspace that coordinated the transaction was dropped")

// Status is how the record says that the transaction stands. A nil record is PENDING without a
// bound.
func (r *Record) Status() *kvpb.TransactionStatus {
	if r == nil {
		return &kvpb.TransactionStatus{}
	}
	return &kvpb.TransactionStatus{State: r.State, Timestamp: wire.ToTimestamp(r.Timestamp),
		Reason: r.Reason, Wounder: r.Wounder.Bytes(),
		WantedKey: r.Wanted.Key, WantedKeyspace: uint32(r.Wanted.Keyspace),
		LimitMicros: uint64(r.Limit.Microseconds())}
}

// Pusher brings pushes to the coordinators of the transactions that are in the way.
type Pusher interface {
	// Push sends a push to the coordinator of its pushee and never blocks. It calls done exactly
	// once, from any goroutine and perhaps before it returns (so the caller must hold no lock that
	// done takes), with how the transaction stands at some moment after the call, or with why that
	// cannot be told now. The request must not be changed afterwards.
	Push(q *kvpb.PushRequest, done func(*kvpb.TransactionStatus, error))
}

// Committed is a committed transaction, and where it has had locks.
type Committed struct {
	ID ID
	// Keyspace and Anchor, a user key, say where its record lies.
	Keyspace keys.KeyspaceID
	Anchor   []byte
	// At is the commit timestamp.
	At           hlc.Timestamp
	Participants []Participant
}

// Resolver ends the locks of committed transactions wherever they are.
type Resolver interface {
	// Resolve has the locks of the transactions ended in all partitions of their participants, as far
	// as these locks name the anchor: others are of another transaction, which has taken the id.
	// settled[i] says that for each key of those of all[i] a partition that held it has answered that
	// there is none any more, or that the keyspace is gone; otherwise it is to be asked again at
	// another time. It returns when all is answered or given up, which is no later than ctx ends.
	// Nothing of all is changed or kept.
	Resolve(ctx context.Context, all []Committed) (settled []bool)
}
