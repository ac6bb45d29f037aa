package replica

import (
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// moved refuses a read, before or after it has read, if the partition is not what it was when the
// read was admitted.
func (r *Replica) moved(rd *read) *kvpb.Response {
	if by := r.consumedBy.Load(); by != nil {
		return r.refuse.StaleEpoch(rd.pending.Request, by)
	}
	if d := r.Descriptor(); d.GetGeneration() != rd.descriptor.GetGeneration() ||
		r.coming.Load() > d.GetGeneration() {
		return r.refuse.StaleEpoch(rd.pending.Request, d)
	}
	return nil
}

// unavailable is why a replica answers no requests at all: the first of these that is set, or that
// the replica is closed.
type unavailable struct {
	failed error
	// stale is the descriptor that has taken the place of the one that requests name.
	stale *clusterpb.Partition
}

// unavailableLocked is nil if the replica may answer.
func (r *Replica) unavailableLocked() *unavailable {
	failed, by := r.mu.failed, r.consumedBy.Load()
	if failed == nil && by == nil && !r.closed.Load() {
		return nil
	}
	return &unavailable{failed, by}
}

// refuse is the answer to a request. No lock is held.
func (u *unavailable) refuse(r *Replica, q *kvpb.Request) *kvpb.Response {
	switch {
	case u.failed != nil:
		return r.refuse.Failed(q, u.failed)
	case u.stale != nil && !r.closed.Load():
		return r.refuse.StaleEpoch(q, u.stale)
	}
	return r.refuse.Closed(q)
}
