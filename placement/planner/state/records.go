package state

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// Indices that name nothing.
const (
	NoNode      = ^uint16(0)
	NoPartition = ^uint32(0)
	NoReplica   = int8(-1)
)

// Node is the record of a node, and of what is on it.
type Node struct {
	Told planner.Node
	// Known is set by SetNode. A node that only a descriptor names is neither live nor lost.
	Known        bool
	Condition    Condition
	Zone, Region uint16
	// Partitions holds the partitions with a replica on the node, in no order.
	Partitions []uint32
	// Sum adds up what is on the node by the descriptors, with the operators in flight counted as
	// done.
	Sum [planner.Dimensions]int64
	// OtherBytes is how many bytes the disk holds beside the replicas, by the last report.
	OtherBytes int64
	// reported is set by SetNode until the next step.
	reported bool
	// Pending is the part of the sum of bytes that is in flight: positive if it is to arrive.
	Pending int64
	// Receiving and Sending count snapshots in flight, Transfers leaderships in flight to the node.
	Receiving, Sending, Transfers int
	// Resizing counts the partitions led by the node that split or merge.
	Resizing int
}

// hold adds a replica that follows to the sums of the node, or subtracts it.
func (n *Node) hold(p *Partition, sign int64) {
	n.Sum[planner.ByBytes] += sign * p.Bytes
	n.Sum[planner.ByLoad] += sign * int64(p.FollowerLoad)
	n.Sum[planner.ByCount] += sign
}

// lead adds to the sums of the node what leading a partition costs beyond following it, or
// subtracts the same.
func (n *Node) lead(p *Partition, sign int64) {
	n.Sum[planner.ByLoad] += sign * (int64(p.LeaderLoad) - int64(p.FollowerLoad))
	n.Sum[planner.ByLeaders] += sign
}

// Partition is the record of a partition, in 64 bytes.
type Partition struct {
	ID    keys.PartitionID
	Epoch planner.Epoch
	Bytes int64
	// LeaderLoad and FollowerLoad are what the partition costs its leader and each follower, in
	// millionths of a processor.
	LeaderLoad, FollowerLoad uint32
	// Ended is when the last operator on the partition ended, in Unix seconds; 0: never.
	Ended uint32
	// first is the index of its first replica in the arena, Count the number of replicas.
	first    uint32
	Keyspace uint16
	// Leader leads, Wanted should; NoNode if not known or none in particular.
	Leader, Wanted uint16
	// Leads is the node that the sums count as leader: Wanted if that node can lead, else Leader.
	Leads uint16
	Count uint8
	// changed: the list of changes has the partition.
	changed bool
	// InFlight: an operator on the partition is in flight.
	InFlight bool
}

// Replica is the record of a replica, in 8 bytes.
type Replica struct {
	Node   uint16
	Role   planner.Role
	Damage planner.Damage
	// listed is the index of the replica in the Partitions of its node.
	listed uint32
}
