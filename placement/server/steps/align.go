package steps

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A requested merge first brings the replicas of both partitions to the same nodes. It does so by
// replacements, one after the other, each with the steps of an operator that replaces a replica.
// The next replacement follows from the descriptors.

// Together reports whether two partitions have voters on the same nodes, and no other replicas.
func Together(a, b *clusterpb.Partition) bool {
	if !AllVote(a) || !AllVote(b) || len(a.Replicas) != len(b.Replicas) {
		return false
	}
	for _, r := range a.Replicas {
		if ReplicaAt(b, keys.NodeID(r.Node)) == nil {
			return false
		}
	}
	return true
}

// bringTogether returns the next step that brings the replicas to the same nodes. It returns false
// if they are on the same nodes.
func bringTogether(
	o *serverpb.Operator, at Sides, rank func(node uint64) Rank,
) (Step, bool) {
	if Together(at.Left, at.Right) {
		return Step{}, false
	}
	moving, leader := at.Left, at.LeftLeader
	if o.Moves == at.Right.Id {
		moving, leader = at.Right, at.RightLeader
	}
	m := replacement(o, at, moving, leader)
	switch {
	case o.Moves == 0:
		return Step{Done: true, Text: "the replicas of the two are not on the same nodes any more"},
			true
	case moving.Frozen != nil:
		return Step{Text: fmt.Sprintf("waits for partition %d to thaw", moving.Id)}, true
	case m == nil:
		return Step{Text: "waits for the replicas of both partitions to be voters"}, true
	case m.AddNode != 0 && rank(m.AddNode) == Silent:
		return Step{Text: fmt.Sprintf("waits for node %d to answer, which is to get a replica of "+
			"partition %d", m.AddNode, moving.Id)}, true
	}
	next := Next(m, moving, leader, rank)
	what := fmt.Sprintf("partition %d comes to the same nodes: ", moving.Id)
	if m.AddNode != 0 && m.RemoveNode != 0 {
		what = fmt.Sprintf("partition %d moves from node %d to node %d: ", moving.Id, m.RemoveNode,
			m.AddNode)
	}
	// A replacement that is done does not complete the work. The work is done when both partitions
	// have their replicas on the same nodes.
	next.Done, next.Text = false, what+next.Text
	return next, true
}

// replacement returns the operator of one replacement: a partition gets a replica on a node where
// the other partition has one, in place of a replica elsewhere. It returns nil if nothing has to be
// replaced.
func replacement(o *serverpb.Operator, at Sides, d *clusterpb.Partition, leader keys.NodeID,
) *serverpb.Operator {
	if o.Moves != d.Id && !joint(d) {
		return nil
	}
	stands := at.Left
	if d == at.Left {
		stands = at.Right
	}
	m := &serverpb.Operator{Id: o.Id, Partition: d.Id}
	voters := 0
	var comes, newest, leaves *clusterpb.Replica
	for _, r := range d.Replicas {
		there := ReplicaAt(stands, keys.NodeID(r.Node)) != nil
		if r.Role != clusterpb.ReplicaRole_LEARNER {
			voters++
		}
		switch {
		case r.Role == clusterpb.ReplicaRole_LEARNER && there:
			comes = r
		case r.Role == clusterpb.ReplicaRole_LEARNER:
			m.RemoveReplica, m.RemoveNode = r.Replica, r.Node // no operator continues this replica
			return m
		case there && (newest == nil || r.Replica > newest.Replica):
			newest = r
		case !there && (leaves == nil || keys.NodeID(leaves.Node) == leader ||
			keys.NodeID(r.Node) != leader && r.Node < leaves.Node):
			leaves = r
		}
	}
	if comes == nil && voters > len(stands.Replicas) {
		comes = newest // the only voter is replaced in two changes, and this is the state between them
	}
	if comes != nil {
		m.AddReplica, m.AddNode = comes.Replica, comes.Node
	} else {
		for _, r := range stands.Replicas {
			if ReplicaAt(d, keys.NodeID(r.Node)) == nil && (m.AddNode == 0 || r.Node < m.AddNode) {
				m.AddReplica, m.AddNode = NextReplica(d), r.Node
			}
		}
	}
	if leaves != nil {
		m.RemoveReplica, m.RemoveNode = leaves.Replica, leaves.Node
	}
	if m.AddReplica == 0 && m.RemoveReplica == 0 && !joint(d) {
		return nil
	}
	return m
}

// Recovered reports whether a descriptor is the result of a partition's recovery, or follows from
// that result.
func Recovered(d *clusterpb.Partition, r *clusterpb.RecoveredPartition) bool {
	if r == nil || d.Membership < r.Membership {
		return false
	}
	at := ReplicaOf(d, r.Replica)
	return at != nil && at.Node == r.Node
}
