package replica

import (
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Reads ahead of the physical clock.
//
// A later leader may not write at or below the timestamp of a read that this one has served. It
// knows of it by what is in the log, and by its own clock: it begins one hlc.Clock.MaxAhead above
// that (LeadershipChanged). Its clock may be one MaxOffset behind this server's, so it is above
// everything that lies no more than MaxAhead - MaxOffset above what this server's clock shows at
// the time of its election. Which is not before the end of this leader's lease.
//
// A hybrid clock may be further ahead: it has merged what a client has named, or what another
// partition's new leader has written. A read at such a timestamp is served if the lease lasts until
// the physical clock has come that far. Otherwise a quorum is asked first, which makes the lease as
// long as it gets. If that is not long enough the read is refused, and clients send it again. In a
// healthy cluster leases last for longer than clocks are apart.

// checkAhead refuses a timestamp from so far ahead that no clock of the cluster can have given it,
// and merges it otherwise.
func (r *Replica) checkAhead(t, now hlc.Timestamp) bool {
	return t.LessEq(now) || r.node.Clock.Update(t) == nil
}

// earlyLocked is by how much a read at a timestamp is too early to be served.
func (r *Replica) earlyLocked(t hlc.Timestamp) time.Duration {
	if t.Wall <= r.mu.applied.Highest.Wall {
		return 0 // every later leader begins beyond what is in the log
	}
	clock := r.node.Clock
	ahead := time.Duration(t.Wall-clock.Physical()) - (clock.MaxAhead() - clock.MaxOffset())
	if ahead <= 0 {
		return 0
	}
	return ahead - max(0, r.group.LeaseLeft())
}

// earlyError refuses a read that is too early.
func (r *Replica) earlyError(q *kvpb.Request, t hlc.Timestamp, early time.Duration) *kvpb.Response {
	r.node.Metrics.readsEarly.Inc()
	response := newError(q, kvpb.ErrorCode_OVERLOADED,
		"partition %s: the read at %s is ahead of this server's clock by more than its lease is "+
			"certain to last; it can run in %s",
		r.id, t, early.Round(time.Millisecond))
	response.Error.Cause = kvpb.ErrorCause_CAUSE_CLOCKS
	return command.Refusing(response, t, hlc.Timestamp{})
}
