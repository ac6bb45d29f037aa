package state

import (
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
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

// Keyspace is the record of a keyspace.
type Keyspace struct {
	Wants planner.Keyspace
	// Known is set by SetKeyspace. A keyspace that only partitions name is not known, and nothing is
	// planned for it.
	Known bool
	// partitions is the number of partitions of the keyspace.
	partitions int
	// bytes is the sum of the bytes of those.
	bytes int64
	// Masks holds, by the index of a node, which rules the node matches; it is empty if the keyspace
	// has no rules.
	Masks []rules.Mask
	// Preferred holds, by the index of a node, whether the keyspace prefers its leaders there; it is
	// empty if the keyspace has no preference.
	Preferred []bool
}

// Merge is what was known of two partitions when they merged. The leader of the partition that they
// have become may begin to measure anew, and never measured the right one.
type Merge struct {
	// At is when they merged, in Unix seconds.
	At uint32
	// Peak is the most that both together had cost of late, in millionths of a processor.
	Peak uint32
	// Calm is for how long both had cost no more.
	Calm time.Duration
	// Leader led the left one, and goes on leading. Calm counts only as long as it leads: another
	// leader has not seen the load since then.
	Leader uint16
}

// InFlight is an operator in flight, with indices in place of ids.
type InFlight struct {
	Partition uint32
	// Add, Remove and Lead are the nodes that get a replica, lose one, and lead at the end; NoNode
	// where the operator changes nothing.
	Add, Remove, Lead uint16
	// Sender is the node that sends the snapshot, NoNode if none is sent or the node is not known.
	Sender uint16
	// Resizes: the partition splits or merges. Sender leads it.
	Resizes bool
	// shadow: the partition is merged into that of the entry before this one. It is only left alone.
	shadow bool
	// gone: the partition was removed. The operator still counts for the limits of its nodes.
	gone bool
}

// inFlight holds the operators in flight.
type inFlight struct {
	list []InFlight
	// of is the index in the list, by the index of the partition.
	of map[uint32]int
	// Working is how many operators change something. Operators that were cancelled do not.
	Working int
	// Resizing is how many of these are splits and merges.
	Resizing int
}

// InFlight returns the operators in flight. The caller must not change them.
func (f *inFlight) InFlight() []InFlight { return f.list }

func (f *inFlight) get(partition uint32) *InFlight { return &f.list[f.of[partition]] }

// remove notes that a partition was removed, which is out of the sums already.
func (f *inFlight) remove(partition uint32) {
	if at, ok := f.of[partition]; ok {
		f.list[at].gone = true
		delete(f.of, partition)
	}
}
