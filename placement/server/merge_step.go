package server

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// mergeKind is what operators that merge two partitions are called.
	mergeKind = "merge"
	// mergeTries is how often the left one of two partitions tries to consume the right one.
	mergeTries = 5
)

// merges says whether an operator merges its partition with the right neighbour.
func merges(o *serverpb.Operator) bool { return o.GetRight() != 0 }

// sides are the two partitions of a merge as they are known, and the nodes that lead them (0: that
// is not known). right is nil if the table does not have it any more.
type sides struct {
	left, right             *clusterpb.Partition
	leftLeader, rightLeader keys.NodeID
}

// A merge goes by the rule of all operators: what is next follows from the two descriptors and from
// the nodes that lead them.
//
//	the right one is gone           it is done: the table drops it as the left one becomes wider
//	the left one is reported wider  wait for that
//	it is cancelled                 take moves back, and raise the left one's membership, so that an
//	                                order that is on its way does not fit and a freeze is for an
//	                                epoch that is over; then it is done
//	replicas are on other nodes     move them, if the operator is to, one after the other
//	the right one is frozen         for an epoch of the left one that is over: it thaws by itself.
//	                                For the present one: the attempt goes on, or is taken back if
//	                                the two are led apart
//	a node does not answer          wait: all replicas of the right one have to freeze
//	the leaders are on two nodes    have the right one led where the left one is
//	all is well                     have the left one consume the right one
//
// An attempt that fails raises the left one's membership, and the next one is made for that. After
// mergeTries the operator is cancelled.
func mergeStep(o *serverpb.Operator, at sides, rank func(node uint64) leadRank) nextStep {
	left, right := at.left, at.right
	switch {
	case right == nil && left.Generation != o.Generation:
		return nextStep{done: true, text: doneText}
	case right == nil:
		return nextStep{done: true, text: fmt.Sprintf("partition %d is gone", o.Right)}
	case left.Generation != o.Generation && keys.PartitionSpan(left).Contains(right.Start):
		// INVARIANT: the operator ends when the table has it, and not when it is reported: it is the
		// evidence for the report, and another operator of the right one would go on with what is gone.
		return nextStep{text: fmt.Sprintf("has merged it with partition %d: the table is to follow",
			right.Id)}
	case left.Generation != o.Generation || right.Generation != o.RightGeneration:
		return nextStep{done: true, text: "the span of one of the two changed meanwhile"}
	case o.Cancelled:
		return separate(o, at, rank)
	}
	if next, apart := bringTogether(o, at, rank); apart {
		return next
	}
	if f := right.Frozen; f != nil {
		switch {
		case !freezesFor(f, left):
			return nextStep{text: fmt.Sprintf("waits for partition %d to thaw, to try again", right.Id)}
		case at.leftLeader != 0 && at.rightLeader != 0 && at.leftLeader != at.rightLeader:
			return raise(o, left, "takes the attempt back: partition %d, which is frozen, is led by "+
				"node %d now", right.Id, at.rightLeader)
		}
		return consume(o, left, thawed(right))
	}
	if n := triesOf(o, left, right); n >= mergeTries {
		return nextStep{text: fmt.Sprintf("has tried %d times, and is given up", n)}
	}
	for _, d := range []*clusterpb.Partition{left, right} {
		for _, r := range d.Replicas {
			if rank(r.Node) == silent {
				return nextStep{text: fmt.Sprintf("waits for node %d to answer: a merge needs all "+
					"replicas of both", r.Node)}
			}
		}
	}
	if next, apart := leadTogether(o, at, rank); apart {
		return next
	}
	return consume(o, left, right)
}

// leadTogether has both partitions led by the same node; false: they are.
func leadTogether(o *serverpb.Operator, at sides, rank func(node uint64) leadRank,
) (nextStep, bool) {
	left, right := at.left, at.right
	for _, d := range []*clusterpb.Partition{left, right} {
		if d == left && at.leftLeader == 0 || d == right && at.rightLeader == 0 {
			return nextStep{text: fmt.Sprintf("waits for a leader of partition %d to report", d.Id)}, true
		}
	}
	lead := func(d *clusterpb.Partition, to *clusterpb.Replica) nextStep {
		next := handOver(o, d, to)
		next.text = fmt.Sprintf("waits for partition %d to be led by node %d", d.Id, to.Node)
		return next
	}
	// A node hands the lead back to the replica that is wanted, so the wanted one it has to be, unless
	// that is on a node which leaves leadership to others.
	if to := replicaOf(left, wanted(left)); to != nil && keys.NodeID(to.Node) != at.leftLeader &&
		rank(to.Node) == leadsWell {
		return lead(left, to), true
	}
	to := replicaAt(right, at.leftLeader)
	switch {
	case to == nil:
		return nextStep{text: fmt.Sprintf("waits for another leader of partition %d: node %d has no "+
			"replica of partition %d", left.Id, at.leftLeader, right.Id)}, true
	case wanted(right) != to.Replica:
		next := raise(o, right, "has node %d wanted as leader of partition %d", to.Node, right.Id)
		next.order.Target.WantedLeader = to.Replica
		return next, true
	case at.rightLeader != at.leftLeader:
		return lead(right, to), true
	}
	return nextStep{}, false
}

// consume has the left partition consume the right one.
func consume(o *serverpb.Operator, left, right *clusterpb.Partition) nextStep {
	target := proto.Clone(left).(*clusterpb.Partition)
	target.Generation, target.End = max(left.Generation, right.Generation)+1, right.End
	return nextStep{order: &clusterpb.Order{Operator: o.Id, Target: target, Consume: right},
		text: fmt.Sprintf("merges it with partition %d", right.Id)}
}

// raise raises the membership of a partition.
func raise(o *serverpb.Operator, d *clusterpb.Partition, format string, args ...any) nextStep {
	target := proto.Clone(d).(*clusterpb.Partition)
	target.Membership++
	return nextStep{order: &clusterpb.Order{Operator: o.Id, Target: target},
		text: fmt.Sprintf(format, args...)}
}

// freezesFor says whether a partition was frozen for the present epoch of another one.
func freezesFor(f *clusterpb.Freeze, left *clusterpb.Partition) bool {
	return f.Partition == left.Id && f.Generation == left.Generation &&
		f.Membership == left.Membership
}

// thawed is a frozen partition as it was before, which is what an attempt that goes on began with.
func thawed(d *clusterpb.Partition) *clusterpb.Partition {
	before := proto.Clone(d).(*clusterpb.Partition)
	before.Frozen = nil
	before.Membership--
	return before
}

// triesOf is how many attempts have failed: each raises the left one's membership by one, and the
// right one's by two, as that freezes and thaws. What is moved changes for other reasons too.
func triesOf(o *serverpb.Operator, left, right *clusterpb.Partition) uint64 {
	if o.Moves == left.Id {
		return (max(right.Membership, o.Membership) - o.Membership) / 2
	}
	return max(left.Membership, o.Membership) - o.Membership
}

// separate takes a merge back.
func separate(o *serverpb.Operator, at sides, rank func(node uint64) leadRank) nextStep {
	for _, d := range []*clusterpb.Partition{at.left, at.right} {
		leader := at.leftLeader
		if d == at.right {
			leader = at.rightLeader
		}
		if m := replacement(o, at, d, leader); d.Frozen == nil && m != nil &&
			(joint(d) || m.AddReplica != 0 && replicaOf(d, m.AddReplica) != nil) {
			m.Cancelled = true
			if next := stepOf(m, d, leader, rank); !next.done {
				next.text = fmt.Sprintf("partition %d: %s", d.Id, next.text)
				return next
			}
		}
	}
	switch {
	case at.left.Membership <= o.CancelledAt:
		return raise(o, at.left, "keeps the partitions apart")
	case o.Moves == at.right.Id && at.right.Frozen == nil &&
		at.right.Membership <= o.RightCancelledAt:
		return raise(o, at.right, "keeps the replicas of partition %d where they are", at.right.Id)
	}
	return nextStep{done: true, text: "was cancelled"}
}
