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
	// Abandoned is the time without a heartbeat after which requests that meet a lock of a pending
	// transaction abort the transaction.
	Abandoned = 3 * time.Second
	// HeartbeatInterval is the interval of a client's heartbeats, once it has acquired a lock.
	HeartbeatInterval = time.Second
	// Orphaned is the time after which requests that meet a lock take its transaction for aborted,
	// counted from when the coordinator was found dropped with its keyspace. During the shorter
	// RemovalGrace, replicas of the dropped keyspace still answer with the commits that they know.
	Orphaned     = time.Minute
	RemovalGrace = 45 * time.Second
)

// ErrCoordinatorGone is the error of a push when the keyspace of the pushee's anchor was dropped.
var ErrCoordinatorGone = errors.New("the keyspace that coordinated the transaction was dropped")

// Status returns the status that the record gives the transaction. A nil record is PENDING without
// a bound.
func (r *Record) Status() *kvpb.TransactionStatus {
	if r == nil {
		return &kvpb.TransactionStatus{}
	}
	return &kvpb.TransactionStatus{State: r.State, Timestamp: wire.ToTimestamp(r.Timestamp),
		Reason: r.Reason, Wounder: r.Wounder.Bytes(),
		WantedKey: r.Wanted.Key, WantedKeyspace: uint32(r.Wanted.Keyspace),
		LimitMicros: uint64(r.Limit.Microseconds())}
}

// Pusher sends pushes to the coordinators of transactions whose locks are in the way.
type Pusher interface {
	// Push sends a push to the coordinator of its pushee and never blocks. It calls done exactly
	// once, from any goroutine and perhaps before it returns, so the caller must hold no lock that
	// done takes. done gets the status of the transaction at some moment after the call, or the
	// error that prevents an answer now. The request must not be changed afterwards.
	Push(q *kvpb.PushRequest, done func(*kvpb.TransactionStatus, error))
}

// Committed is a committed transaction, with the spans in which it has had locks.
type Committed struct {
	ID ID
	// Keyspace and Anchor, a user key, locate its record.
	Keyspace keys.KeyspaceID
	Anchor   []byte
	// At is the commit timestamp.
	At           hlc.Timestamp
	Participants []Participant
}

// Resolver releases the locks of committed transactions in all partitions.
type Resolver interface {
	// Resolve releases the locks of the transactions in all partitions of their participants, but
	// only locks that name the same anchor: other locks belong to another transaction with the same
	// id. settled[i] is set if, for each key of the participants of all[i], a partition that held
	// the key has answered that it has no lock any more, or the keyspace is gone; otherwise all[i]
	// has to be tried again later. Resolve returns when every request has ended, at the latest when
	// ctx ends. It neither changes nor keeps `all`.
	Resolve(ctx context.Context, all []Committed) (settled []bool)
}
