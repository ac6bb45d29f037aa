package replica

import (
	"strings"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// room is whether a partition's replicas have room on their disks for a write.
type room int

const (
	// roomEnough: the leader has room, and so has a quorum with it, as far as is known.
	roomEnough room = iota
	// roomElsewhere: the leader has none, but a quorum of the replicas has: it hands over to one of
	// those.
	roomElsewhere
	// roomNowhere: no quorum has room.
	roomNowhere
)

// room says whether a write finds room. The evaluator asks once for each evaluation.
func (r *Replica) room(descriptor *clusterpb.Partition) room {
	here := r.node.DiskFull == nil || !r.node.DiskFull()
	if r.node.AnyWithoutRoom == nil {
		if here {
			return roomEnough
		}
		return roomNowhere
	}
	if here && !r.node.AnyWithoutRoom() {
		return roomEnough
	}
	full, takes := 0, map[keys.ReplicaID]bool{}
	for _, replica := range descriptor.GetReplicas() {
		if replica.GetRole() == clusterpb.ReplicaRole_LEARNER {
			continue
		}
		node, id := keys.NodeID(replica.GetNode()), keys.ReplicaID(replica.GetReplica())
		switch {
		case id == r.self:
			takes[id] = here
		case r.node.WithoutRoom(node):
			full++
		case r.node.Silent == nil || !r.node.Silent(node):
			takes[id] = true
		}
	}
	members := group.ConfigurationOf(descriptor)
	quorum := members.Quorum(func(id keys.ReplicaID) bool { return takes[id] })
	switch {
	case quorum && here, here && full == 0:
		return roomEnough
	case quorum:
		return roomElsewhere
	}
	return roomNowhere
}

// noRoom refuses a write. A client that is told of a leader that hands over asks again until there
// is another.
func (r *Replica) noRoom(request *kvpb.Request, descriptor *clusterpb.Partition,
	where room) *kvpb.Response {
	if where == roomElsewhere {
		return newError(request, kvpb.ErrorCode_NOT_LEADER,
			"partition %s: the disk of its leader is full, and it hands over to a node with free disk "+
				"space; try again", r.id)
	}
	return newError(request, kvpb.ErrorCode_DISK_FULL,
		"partition %s: %s: reads go on, and writes as soon as there is free disk space", r.id,
		r.whoIsFull(descriptor))
}

// whoIsFull names the nodes without room.
func (r *Replica) whoIsFull(descriptor *clusterpb.Partition) string {
	var full []string
	for _, replica := range descriptor.GetReplicas() {
		node := keys.NodeID(replica.GetNode())
		own := keys.ReplicaID(replica.GetReplica()) == r.self
		if own && r.node.DiskFull != nil && r.node.DiskFull() || !own && r.node.WithoutRoom != nil &&
			r.node.WithoutRoom(node) {
			full = append(full, "node "+node.String())
		}
	}
	switch len(full) {
	case 0:
		return "no quorum of its replicas has free disk space"
	case 1:
		return "the disk of " + full[0] + " is full"
	}
	return "the disks of " + strings.Join(full, " and ") + " are full"
}
