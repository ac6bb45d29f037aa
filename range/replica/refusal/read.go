package refusal

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// NotApplied refuses a read that was admitted at an index which this replica has not applied.
func (r *Refuser) NotApplied(q *kvpb.Request, index, applied uint64) *kvpb.Response {
	return r.refuse(q, kvpb.ErrorCode_NOT_CLOSED, "this replica has applied the log up to entry %d, "+
		"and the read was admitted at entry %d; the leader can answer", applied, index)
}

// NotClosed refuses a read that this replica cannot answer yet. closed is the timestamp up to which
// it can answer.
func (r *Refuser) NotClosed(q *kvpb.Request, need, closed hlc.Timestamp) *kvpb.Response {
	if closed.IsZero() {
		return r.refuse(q, kvpb.ErrorCode_NOT_CLOSED, "this replica has not heard yet from a leader up "+
			"to when it can answer; the leader can answer")
	}
	response := r.refuse(q, kvpb.ErrorCode_NOT_CLOSED,
		"this replica can answer for %s and before, and was asked for %s; the leader can answer", closed,
		need)
	return command.Refusing(response, need, closed)
}

// MayBeWritten is NotClosed for a read whose keys are locked.
func (r *Refuser) MayBeWritten(q *kvpb.Request, need, below hlc.Timestamp,
	c *kvpb.Conflict) *kvpb.Response {
	response := r.refuse(q, kvpb.ErrorCode_NOT_CLOSED,
		"transaction %x, which may have written the key "+
			"%q, is not known to be over by this replica; the leader can answer", c.Transaction, c.Key)
	response.Error.Conflict = c
	return command.Refusing(response, need, below)
}

// InFuture refuses a read at a timestamp that no clock of the cluster can have given.
func (r *Refuser) InFuture(q *kvpb.Request, at, now hlc.Timestamp) *kvpb.Response {
	return command.Refusing(r.refuse(q, kvpb.ErrorCode_TIMESTAMP_IN_FUTURE,
		"it cannot be read at %s yet, the clock stands at %s", at, now), at, now)
}

// TooOld refuses a read of versions that garbage collection may have removed.
func (r *Refuser) TooOld(q *kvpb.Request, at, threshold hlc.Timestamp) *kvpb.Response {
	return command.Refusing(r.refuse(q, kvpb.ErrorCode_TIMESTAMP_TOO_OLD,
		"it cannot be read at %s any more, versions are kept since %s", at, threshold), at, threshold)
}

// BeyondLease refuses a read at a timestamp that is ahead of this leader's lease; early is by how
// much.
func (r *Refuser) BeyondLease(q *kvpb.Request, t hlc.Timestamp, early time.Duration,
) *kvpb.Response {
	r.Node.Metrics.Reads.BeyondLease.Inc()
	response := r.refuse(q, kvpb.ErrorCode_OVERLOADED,
		"the read at %s is ahead of this server's clock "+
			"by more than its lease is certain to last; it can run in %s", t, early.Round(time.Millisecond))
	response.Error.Cause = kvpb.ErrorCause_CAUSE_CLOCKS
	return command.Refusing(response, t, hlc.Timestamp{})
}

// Uncertain refuses a read that has met a version or an expiry which may have come before the read.
func (r *Refuser) Uncertain(q *kvpb.Request, at, met hlc.Timestamp, expiry bool) *kvpb.Response {
	what := fmt.Sprintf("a version at %s may have been written", met)
	if expiry {
		what = fmt.Sprintf("that a value expired at %s may have been seen", met)
	}
	return command.Refusing(r.refuse(q, kvpb.ErrorCode_UNCERTAIN,
		"%s before the read at %s began; read again at that timestamp", what, at), at, met)
}
