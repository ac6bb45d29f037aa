package steps

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// mergeKind is the name of operators that merge two partitions.
	mergeKind = "merge"
	// MergeTries is the number of attempts of the left partition to subsume the right one.
	MergeTries = 5
)

// Merges reports whether an operator merges its partition with the right neighbour.
func Merges(o *serverpb.Operator) bool { return o.GetRight() != 0 }

// Sides has the descriptors of the two partitions of a merge, and the nodes that lead them. A node
// is 0 if the leader is not known. Right is nil if the table no longer has the right partition.
type Sides struct {
	Left, Right             *clusterpb.Partition
	LeftLeader, RightLeader keys.NodeID
}

// A merge follows the rule of all operators: the next step follows from the two descriptors and
// from the nodes that lead them.
//
//	the right one is gone           done: the table drops it when the left one becomes wider
//	the left one is reported wider  wait for that
//	the operator is cancelled       take moves back, and raise the left one's membership, so that an
//	                                order that is on its way does not fit and a freeze is for an
//	                                epoch that is over; then it is done
//	replicas are on other nodes     move them, if the operator may, one after the other
//	the right one is frozen         for a former epoch of the left one: it thaws by itself.
//	                                For the present one: the attempt continues, or is taken back if
//	                                different nodes lead the two
//	a node does not answer          wait: all replicas of the right one have to freeze
//	the leaders are on two nodes    have the right one led where the left one is
//	otherwise                       have the left one consume the right one
//
// An attempt that fails raises the left partition's membership, and the next attempt is made for
// the new membership. After MergeTries attempts the operator is cancelled.
func Merge(o *serverpb.Operator, at Sides, rank func(node uint64) Rank) Step {
	left, right := at.Left, at.Right
	switch {
	case right == nil && left.Generation != o.Generation:
		return Step{Done: true, Text: DoneText}
	case right == nil:
		return Step{Done: true, Text: fmt.Sprintf("partition %d is gone", o.Right)}
	case left.Generation != o.Generation && keys.PartitionSpan(left).Contains(right.Start):
		// INVARIANT: the operator ends when the table has the merge, and not when the merge is reported:
		// the operator is the evidence for the report, and another operator of the right partition would
		// continue with a partition that is gone.
		return Step{Text: fmt.Sprintf("has merged it with partition %d: the table is to follow",
			right.Id)}
	case left.Generation != o.Generation || right.Generation != o.RightGeneration:
		return Step{Done: true, Text: "the span of one of the two changed meanwhile"}
	case o.Cancelled:
		return separate(o, at, rank)
	}
	if next, apart := bringTogether(o, at, rank); apart {
		return next
	}
	if f := right.Frozen; f != nil {
		switch {
		case !FreezesFor(f, left):
			return Step{Text: fmt.Sprintf("waits for partition %d to thaw, to try again", right.Id)}
		case at.LeftLeader != 0 && at.RightLeader != 0 && at.LeftLeader != at.RightLeader:
			return raise(o, left, "takes the attempt back: partition %d, which is frozen, is led by "+
				"node %d now", right.Id, at.RightLeader)
		}
		return consume(o, left, thawed(right))
	}
	if n := TriesOf(o, left, right); n >= MergeTries {
		return Step{Text: fmt.Sprintf("has tried %d times, and is given up", n)}
	}
	for _, d := range []*clusterpb.Partition{left, right} {
		for _, r := range d.Replicas {
			if rank(r.Node) == Silent {
				return Step{Text: fmt.Sprintf("waits for node %d to answer: a merge needs all "+
					"replicas of both", r.Node)}
			}
		}
	}
	if next, apart := leadTogether(o, at, rank); apart {
		return next
	}
	return consume(o, left, right)
}

// leadTogether has both partitions led by the same node. It returns false if they are.
func leadTogether(o *serverpb.Operator, at Sides, rank func(node uint64) Rank,
) (Step, bool) {
	left, right := at.Left, at.Right
	for _, d := range []*clusterpb.Partition{left, right} {
		if d == left && at.LeftLeader == 0 || d == right && at.RightLeader == 0 {
			return Step{Text: fmt.Sprintf("waits for a leader of partition %d to report", d.Id)}, true
		}
	}
	lead := func(d *clusterpb.Partition, to *clusterpb.Replica) Step {
		next := handOver(o, d, to)
		next.Text = fmt.Sprintf("waits for partition %d to be led by node %d", d.Id, to.Node)
		return next
	}
	// A node transfers leadership back to the wanted replica. So the receiver has to be the wanted
	// replica, unless the wanted replica is on a node that leaves leadership to others.
	if to := ReplicaOf(left, Wanted(left)); to != nil && keys.NodeID(to.Node) != at.LeftLeader &&
		rank(to.Node) == LeadsWell {
		return lead(left, to), true
	}
	to := ReplicaAt(right, at.LeftLeader)
	switch {
	case to == nil:
		return Step{Text: fmt.Sprintf("waits for another leader of partition %d: node %d has no "+
			"replica of partition %d", left.Id, at.LeftLeader, right.Id)}, true
	case Wanted(right) != to.Replica:
		next := raise(o, right, "has node %d wanted as leader of partition %d", to.Node, right.Id)
		next.Order.Target.WantedLeader = to.Replica
		return next, true
	case at.RightLeader != at.LeftLeader:
		return lead(right, to), true
	}
	return Step{}, false
}

// consume has the left partition subsume the right one.
func consume(o *serverpb.Operator, left, right *clusterpb.Partition) Step {
	target := proto.Clone(left).(*clusterpb.Partition)
	target.Generation, target.End = max(left.Generation, right.Generation)+1, right.End
	return Step{Order: &clusterpb.Order{Operator: o.Id, Target: target, Consume: right},
		Text: fmt.Sprintf("merges it with partition %d", right.Id)}
}

// raise raises the membership of a partition.
func raise(o *serverpb.Operator, d *clusterpb.Partition, format string, args ...any) Step {
	target := proto.Clone(d).(*clusterpb.Partition)
	target.Membership++
	return Step{Order: &clusterpb.Order{Operator: o.Id, Target: target},
		Text: fmt.Sprintf(format, args...)}
}

// FreezesFor reports whether a partition was frozen for the present epoch of another one.
func FreezesFor(f *clusterpb.Freeze, left *clusterpb.Partition) bool {
	return f.Partition == left.Id && f.Generation == left.Generation &&
		f.Membership == left.Membership
}

// thawed returns a frozen partition as it was before the freeze. The attempt that continues began
// with that descriptor.
func thawed(d *clusterpb.Partition) *clusterpb.Partition {
	before := proto.Clone(d).(*clusterpb.Partition)
	before.Frozen = nil
	before.Membership--
	return before
}

// TriesOf returns the number of failed attempts. Each attempt raises the left partition's
// membership by one, and the right partition's by two, for freeze and thaw. The membership of a
// partition that is moved also changes for other reasons.
func TriesOf(o *serverpb.Operator, left, right *clusterpb.Partition) uint64 {
	if o.Moves == left.Id {
		return (max(right.Membership, o.Membership) - o.Membership) / 2
	}
	return max(left.Membership, o.Membership) - o.Membership
}

// separate undoes a merge.
func separate(o *serverpb.Operator, at Sides, rank func(node uint64) Rank) Step {
	for _, d := range []*clusterpb.Partition{at.Left, at.Right} {
		leader := at.LeftLeader
		if d == at.Right {
			leader = at.RightLeader
		}
		if m := replacement(o, at, d, leader); d.Frozen == nil && m != nil &&
			(joint(d) || m.AddReplica != 0 && ReplicaOf(d, m.AddReplica) != nil) {
			m.Cancelled = true
			if next := Next(m, d, leader, rank); !next.Done {
				next.Text = fmt.Sprintf("partition %d: %s", d.Id, next.Text)
				return next
			}
		}
	}
	switch {
	case at.Left.Membership <= o.CancelledAt:
		return raise(o, at.Left, "keeps the partitions apart")
	case o.Moves == at.Right.Id && at.Right.Frozen == nil &&
		at.Right.Membership <= o.RightCancelledAt:
		return raise(o, at.Right, "keeps the replicas of partition %d where they are", at.Right.Id)
	}
	return Step{Done: true, Text: "was cancelled"}
}

// NewMerge makes the operator that merges two neighbours whose replicas are on the same nodes.
func NewMerge(left, right *clusterpb.Partition) *serverpb.Operator {
	return &serverpb.Operator{Partition: left.Id, Keyspace: left.Keyspace, Kind: mergeKind,
		Generation: left.Generation, Membership: left.Membership, Right: right.Id,
		RightGeneration: right.Generation, CreatedUnixMs: time.Now().UnixMilli()}
}
