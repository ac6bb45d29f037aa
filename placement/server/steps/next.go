package steps

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// An operator has no state but its goal: the next step follows from the present descriptor. So it
// continues wherever it was interrupted, under any leader of the core, and a step that is taken
// twice has no effect the second time.
//
//	the newcomer is missing     add it as a learner
//	it is a learner             if the replica that goes is wanted as leader, want another; if it
//	                            leads, hand over the leadership; then, by a joint configuration, let
//	                            the newcomer in and the other out
//	no other voter can lead     let the newcomer in while the other one stays
//	it is a voter               hand the leadership to it or another one; then let the other out
//	joint                       end that
//	another replica is to lead  want it as leader, and hand it the leadership
//	the goal is reached         done
//
// A leader cannot be voted out. So the only voter of a partition is replaced in two changes: the
// newcomer becomes a voter and takes over the leadership, and then the old replica is removed.
//
// A cancelled operator goes back to its beginning: a learner is removed, and so is a voter as long
// as the replica that it should replace is a voter too. A joint configuration can only be ended
// first. If that has removed the old replica, the operator is done.

// DoneText is the text of the last step of an operator that has reached its goal.
const DoneText = "done"

// Step is the next step of an operator.
type Step struct {
	// Done is set if nothing is left to do.
	Done bool
	// Order is the order for the partition's leader, or nil.
	Order *clusterpb.Order
	// Text describes the step in words.
	Text string
}

// Next returns the next step of an operator, for a descriptor and the node that leads the
// partition. The node is 0 if the leader is not known. rank says how well nodes can take over
// leadership.
func Next(o *serverpb.Operator, d *clusterpb.Partition, leader keys.NodeID,
	rank func(node uint64) Rank) Step {
	in, out := ReplicaOf(d, o.AddReplica), ReplicaOf(d, o.RemoveReplica)
	next := proto.Clone(d).(*clusterpb.Partition)
	next.Membership++
	step := func(format string, args ...any) Step {
		return Step{Order: &clusterpb.Order{Operator: o.Id, Target: next},
			Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case d.Frozen != nil:
		return Step{Text: fmt.Sprintf("waits for it to thaw: partition %d was to consume it",
			d.Frozen.Partition)}
	case joint(d):
		if at := ReplicaAt(d, leader); at != nil && (at.Role == clusterpb.ReplicaRole_OUTGOING ||
			at.Role == clusterpb.ReplicaRole_DEMOTED) {
			return handOver(o, d, successor(d, at, rank))
		}
		leave(next)
		if r := ReplicaOf(next, o.AddReplica); o.Lead && !o.Cancelled && r != nil {
			next.WantedLeader = o.AddReplica
		}
		return step("ends the change of voters")
	case Splits(o):
		return splitStep(o, d)
	case o.Cancelled && in != nil && in.Role == clusterpb.ReplicaRole_LEARNER:
		remove(next, in.Replica)
		return step("removes the learner on node %d again", in.Node)
	case o.Cancelled && o.AddReplica != 0 && in == nil && o.AddReplica >= NextReplica(d):
		// An order to add the replica may be under way, and must not be valid any more.
		next.NextReplica = o.AddReplica + 1
		return step("gives up replica id %d", o.AddReplica)
	case o.Cancelled && o.AddReplica == 0 && out != nil && d.Membership <= o.CancelledAt:
		// The same is true for an order to remove the replica.
		return step("keeps the replica on node %d", out.Node)
	case o.Cancelled && in != nil && out != nil && out.Role == clusterpb.ReplicaRole_VOTER:
		return voteOut(o, d, in, leader, rank)
	case o.Cancelled:
		return Step{Done: true, Text: "was cancelled"}
	case o.AddReplica != 0 && in == nil:
		if o.AddReplica < NextReplica(d) {
			return Step{Done: true, Text: "its replica was removed meanwhile"}
		}
		next.Replicas = append(next.Replicas, &clusterpb.Replica{Node: o.AddNode,
			Replica: o.AddReplica, Role: clusterpb.ReplicaRole_LEARNER})
		next.NextReplica = o.AddReplica + 1
		return step("adds a learner on node %d", o.AddNode)
	case out == nil && (in == nil || in.Role == clusterpb.ReplicaRole_VOTER):
		return transferStep(o, d, next, leader, rank)
	case out != nil && out.Role == clusterpb.ReplicaRole_LEARNER:
		remove(next, out.Replica)
		return step("removes the learner on node %d", out.Node)
	case in != nil && in.Role == clusterpb.ReplicaRole_LEARNER:
		if out == nil || leads(d, out, leader) && successor(d, out, rank) == nil {
			setRole(next, in.Replica, clusterpb.ReplicaRole_INCOMING)
			return step("makes the learner on node %d a voter", in.Node)
		}
	}
	return voteOut(o, d, out, leader, rank)
}

// voteOut removes a voter. A learner that the operator has added becomes a voter in the same
// change. A voter that leads, or is the wanted leader, first transfers the leadership.
func voteOut(o *serverpb.Operator, d *clusterpb.Partition, out *clusterpb.Replica,
	leader keys.NodeID, rank func(node uint64) Rank) Step {
	next := proto.Clone(d).(*clusterpb.Partition)
	next.Membership++
	order := &clusterpb.Order{Operator: o.Id, Target: next}
	if leads(d, out, leader) {
		to := ReplicaOf(d, o.LeadReplica)
		if to == nil || to == out || to.Role != clusterpb.ReplicaRole_VOTER ||
			rank(to.Node) != LeadsWell {
			to = successor(d, out, rank)
		}
		if to != nil && Wanted(d) == out.Replica {
			// Otherwise the leadership would be transferred back.
			next.WantedLeader = to.Replica
			return Step{Order: order, Text: fmt.Sprintf("has node %d lead instead", to.Node)}
		}
		return handOver(o, d, to)
	}
	if in := ReplicaOf(next, o.AddReplica); in != nil && in.Role == clusterpb.ReplicaRole_LEARNER {
		in.Role = clusterpb.ReplicaRole_INCOMING
	}
	setRole(next, out.Replica, clusterpb.ReplicaRole_OUTGOING)
	return Step{Order: order, Text: "changes the voters"}
}

// leads reports whether a replica leads, or is the wanted leader.
func leads(d *clusterpb.Partition, r *clusterpb.Replica, leader keys.NodeID) bool {
	return keys.NodeID(r.Node) == leader || Wanted(d) == r.Replica
}

// transferStep returns the step when the replicas are those of the goal: one of them may have to
// become the wanted leader. next is the descriptor with its membership raised.
func transferStep(o *serverpb.Operator, d, next *clusterpb.Partition,
	leader keys.NodeID, rank func(node uint64) Rank) Step {
	to := ReplicaOf(d, o.LeadReplica)
	switch {
	case o.LeadReplica == 0:
		return Step{Done: true, Text: DoneText}
	case to == nil || to.Role != clusterpb.ReplicaRole_VOTER:
		return Step{Done: true, Text: "the replica that was to lead does not vote any more"}
	case Wanted(d) != to.Replica:
		next.WantedLeader = to.Replica
		return Step{Order: &clusterpb.Order{Operator: o.Id, Target: next},
			Text: fmt.Sprintf("has node %d wanted as leader", to.Node)}
	case leader != keys.NodeID(to.Node) && rank(to.Node) == LeadsBadly &&
		rank(uint64(leader)) == LeadsWell:
		// That node would transfer the leadership back.
		return Step{Done: true, Text: fmt.Sprintf("node %d is wanted as leader, and leaves "+
			"that to others at present", to.Node)}
	case leader != keys.NodeID(to.Node):
		return handOver(o, d, to)
	}
	return Step{Done: true, Text: DoneText}
}

// handOver transfers the leadership to a replica. to is nil if no replica can take the leadership.
func handOver(o *serverpb.Operator, d *clusterpb.Partition, to *clusterpb.Replica) Step {
	if to == nil {
		return Step{Text: "waits for a node that can take over the lead"}
	}
	return Step{Order: &clusterpb.Order{Operator: o.Id, Target: d, TransferTo: to.Replica},
		Text: fmt.Sprintf("hands the lead to node %d", to.Node)}
}

// ReplicaOf returns the replica with an id, or nil if there is none.
func ReplicaOf(d *clusterpb.Partition, id uint64) *clusterpb.Replica {
	for _, r := range d.GetReplicas() {
		if id != 0 && r.Replica == id {
			return r
		}
	}
	return nil
}

// ReplicaAt returns the replica on a node, or nil if there is none.
func ReplicaAt(d *clusterpb.Partition, node keys.NodeID) *clusterpb.Replica {
	for _, r := range d.GetReplicas() {
		if node != 0 && keys.NodeID(r.Node) == node {
			return r
		}
	}
	return nil
}

func joint(d *clusterpb.Partition) bool {
	for _, r := range d.Replicas {
		if r.Role != clusterpb.ReplicaRole_VOTER && r.Role != clusterpb.ReplicaRole_LEARNER {
			return true
		}
	}
	return false
}

// leave ends a joint configuration.
func leave(d *clusterpb.Partition) {
	d.NextReplica = NextReplica(d) // even if the latest replica is removed
	kept := d.Replicas[:0]
	for _, r := range d.Replicas {
		switch r.Role {
		case clusterpb.ReplicaRole_OUTGOING:
			continue
		case clusterpb.ReplicaRole_INCOMING:
			r.Role = clusterpb.ReplicaRole_VOTER
		case clusterpb.ReplicaRole_DEMOTED:
			r.Role = clusterpb.ReplicaRole_LEARNER
		}
		kept = append(kept, r)
	}
	d.Replicas = kept
}

func remove(d *clusterpb.Partition, id uint64) {
	d.NextReplica = NextReplica(d)
	kept := d.Replicas[:0]
	for _, r := range d.Replicas {
		if r.Replica != id {
			kept = append(kept, r)
		}
	}
	d.Replicas = kept
}

func setRole(d *clusterpb.Partition, id uint64, role clusterpb.ReplicaRole) {
	ReplicaOf(d, id).Role = role
}

// NextReplica returns the id for the next replica of a partition.
func NextReplica(d *clusterpb.Partition) uint64 {
	next := max(d.NextReplica, 1)
	for _, r := range d.Replicas {
		next = max(next, r.Replica+1)
	}
	return next
}

// Wanted returns the id of the wanted leader.
func Wanted(d *clusterpb.Partition) uint64 {
	if r := ReplicaOf(d, d.WantedLeader); r != nil && r.Role == clusterpb.ReplicaRole_VOTER {
		return r.Replica
	}
	for _, r := range d.Replicas {
		if r.Role == clusterpb.ReplicaRole_VOTER {
			return r.Replica
		}
	}
	return 0
}

// successor returns the first of the voters with the highest rank for leadership. It returns nil if
// no voter can lead.
func successor(d *clusterpb.Partition, out *clusterpb.Replica, rank func(node uint64) Rank,
) (best *clusterpb.Replica) {
	highest := LeadsNothing
	for _, r := range d.Replicas {
		if r.Replica == out.Replica || r.Role != clusterpb.ReplicaRole_VOTER {
			continue
		}
		if n := rank(r.Node); n > highest {
			best, highest = r, n
		}
	}
	return best
}

// Neighbours reports whether a partition begins where another one ends, in the same keyspace and
// hash number.
func Neighbours(left, right *clusterpb.Partition) bool {
	return bytes.Equal(right.Start, left.End) && left.Keyspace == right.Keyspace &&
		left.Hash == right.Hash && left.PrefixLength == right.PrefixLength
}
