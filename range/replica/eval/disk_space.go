package eval

import (
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/command"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// diskSpace looks where there is space for writes. It is called once for each evaluation.
func (r *Evaluator) diskSpace(descriptor *clusterpb.Partition) diskSpace {
	here := !r.Node.DiskFull()
	if here && !r.Node.AnyWithoutRoom() {
		return spaceEnough
	}
	full, takes := 0, map[keys.ReplicaID]bool{}
	for _, replica := range descriptor.GetReplicas() {
		if replica.GetRole() == clusterpb.ReplicaRole_LEARNER {
			continue
		}
		node, id := keys.NodeID(replica.GetNode()), keys.ReplicaID(replica.GetReplica())
		switch {
		case id == r.Self:
			takes[id] = here
		case r.Node.WithoutRoom(node):
			full++
		case !r.Node.Silent(node):
			takes[id] = true
		}
	}
	members := group.ConfigurationOf(descriptor)
	quorum := members.Quorum(func(id keys.ReplicaID) bool { return takes[id] })
	switch {
	case quorum && here, here && full == 0:
		return spaceEnough
	case quorum:
		return spaceElsewhere
	}
	return spaceNowhere
}

// reserve returns the smallest share of the reserve with which a quorum of the replicas stores
// entries although diskSpace returned spaceNowhere; NoShare if no quorum stores any.
func (r *Evaluator) reserve(descriptor *clusterpb.Partition) group.Share {
	members := group.ConfigurationOf(descriptor)
	takes := make(map[keys.ReplicaID]bool, len(descriptor.GetReplicas()))
	for share := group.DeletionShare; share < group.Shares; share++ {
		clear(takes)
		for _, replica := range descriptor.GetReplicas() {
			if replica.GetRole() != clusterpb.ReplicaRole_LEARNER {
				takes[keys.ReplicaID(replica.GetReplica())] = r.takes(replica, share)
			}
		}
		if takes[r.Self] && members.Quorum(func(id keys.ReplicaID) bool { return takes[id] }) {
			return share
		}
	}
	return group.NoShare
}

// takes reports whether the node of a replica of this partition stores entries of a share.
func (r *Evaluator) takes(replica *clusterpb.Replica, share group.Share) bool {
	node := keys.NodeID(replica.GetNode())
	switch {
	case keys.ReplicaID(replica.GetReplica()) == r.Self:
		if !r.Node.DiskFull() {
			return true
		}
		own := r.Node.RoomShare()
		return own != group.NoShare && share >= own
	case r.Node.Silent(node):
		return false
	}
	return r.Node.PeerTakes(node, share)
}

// MayCollect reports whether there is room for the entries of garbage collection.
func (r *Evaluator) MayCollect() bool {
	d := r.Descriptor()
	switch r.diskSpace(d) {
	case spaceEnough:
		return true
	case spaceElsewhere:
		return false // another node is to lead
	}
	return r.reserve(d) != group.NoShare
}

// share returns how much of the reserve the outcome of a write may use. needs is set if the outcome
// is an entry at all.
func (e *evaluation) share() (share group.Share, needs bool) {
	switch e.Outcome {
	case command.Written:
		for i := range e.Ops {
			if !e.Ops[i].Tombstone {
				return group.NoShare, true
			}
		}
		return group.DeletionShare, true
	case command.Acquired:
		if e.Acquisition.Volatile {
			return group.NoShare, false
		}
		for _, m := range e.Acquisition.Mutations {
			if m.Kind == kvpb.Mutation_PUT {
				return group.NoShare, true
			}
		}
		return group.DeletionShare, true
	case command.Decided, command.Resolved:
		return group.DeletionShare, true
	case command.Loaded:
		return group.NoShare, true
	}
	return group.NoShare, false
}

// refusedForSpace refuses a write for whose outcome there is no room. It comes after the
// evaluation: a request that an earlier attempt has carried out gets the answer of that attempt,
// and requests that make room go on.
func (e *evaluation) refusedForSpace(w *write) (refused bool) {
	if e.space == spaceEnough {
		return false
	}
	share, needs := e.share()
	if !needs || share != group.NoShare && e.reserve != group.NoShare && share >= e.reserve {
		return false
	}
	response := e.r.Refuse.DiskFull(w.pending.Request, e.Descriptor)
	if e.space == spaceElsewhere {
		response = e.r.Refuse.HandsOver(w.pending.Request)
	}
	e.refuseOutcome(w, response)
	return true
}

// refusedForQuota refuses a write whose outcome would add to a keyspace that holds as much as its
// quota allows, as refusedForSpace does.
func (e *evaluation) refusedForQuota(w *write) (refused bool) {
	quotas, id := e.r.Node.Quotas, keys.KeyspaceID(e.Descriptor.GetKeyspace())
	if quotas == nil || !quotas.Full(id) || w.pending.Request.Background {
		return false
	}
	if share, needs := e.share(); !needs || share != group.NoShare {
		return false
	}
	e.refuseOutcome(w, e.r.Refuse.QuotaExceeded(w.pending.Request, quotas.Refuse(id)))
	return true
}

// refuseOutcome refuses a write after its evaluation.
func (e *evaluation) refuseOutcome(w *write, response *kvpb.Response) {
	if !w.mayDoNothing() || !e.leased || !e.inEpoch() {
		e.refuse(w, response)
		return
	}
	// The proof is that of any answer by reading: the request has written no version here, and an
	// earlier attempt that arrives late has no effect.
	response.Error.NotExecuted = true
	e.answerNothingDone(w, response, 0)
}
