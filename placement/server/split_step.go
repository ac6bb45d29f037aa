package server

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// splitKind is what operators that split a partition are called.
const splitKind = "split"

// splits says whether an operator splits its partition.
func splits(o *serverpb.Operator) bool { return len(o.GetSplitKey()) > 0 }

// A split goes by the same rule as a change of replicas: what is next follows from the descriptor.
// The caller has ended a joint configuration that was left over.
//
//	the generation is another one   it is done, or cannot be any more: each split raises it
//	it is cancelled                 raise the membership, so that an order that is on its way does
//	                                not fit; then it is done
//	there is a learner              remove it: nothing carries it on, or its operator were here
//	all replicas vote               have the partition split
//
// The table shows the parent's next generation only together with the child, so an operator that
// is done has both in the table.
func splitStep(o *serverpb.Operator, d *clusterpb.Partition) nextStep {
	next := proto.Clone(d).(*clusterpb.Partition)
	change := func(format string, args ...any) nextStep {
		next.Membership++
		return nextStep{order: &clusterpb.Order{Operator: o.Id, Target: next},
			text: fmt.Sprintf(format, args...)}
	}
	switch {
	case d.Generation != o.Generation && bytes.Equal(d.End, o.SplitKey):
		return nextStep{done: true, text: doneText}
	case d.Generation != o.Generation:
		return nextStep{done: true, text: "its span changed meanwhile"}
	case o.Cancelled && d.Membership <= o.CancelledAt:
		return change("keeps the partition whole")
	case o.Cancelled:
		return nextStep{done: true, text: "was cancelled"}
	}
	for _, r := range d.Replicas {
		if r.Role != clusterpb.ReplicaRole_VOTER {
			remove(next, r.Replica)
			return change("removes the learner on node %d", r.Node)
		}
	}
	child := proto.Clone(d).(*clusterpb.Partition)
	next.Generation++
	next.End = bytes.Clone(o.SplitKey)
	child.Id, child.Generation, child.Start = o.Child, next.Generation, bytes.Clone(o.SplitKey)
	child.SplitFrom, child.SplitIndex = d.Id, 0
	child.BoundaryAsked = o.Asked
	return nextStep{order: &clusterpb.Order{Operator: o.Id, Target: next, Child: child},
		text: fmt.Sprintf("splits at %s", keys.Pretty(keys.UserKey(d, o.SplitKey)))}
}

// allVote says whether all replicas of a partition are voters, and will be.
func allVote(d *clusterpb.Partition) bool {
	for _, r := range d.Replicas {
		if r.Role != clusterpb.ReplicaRole_VOTER {
			return false
		}
	}
	return true
}

// splitAt is the user key at which an operator splits; nil: it does not, or its keyspace is gone.
func splitAt(ks *clusterpb.Keyspace, o *serverpb.Operator) []byte {
	if ks == nil || !splits(o) {
		return nil
	}
	prefix := keys.KeyspacePrefixLength
	if ks.Partitioning == clusterpb.Partitioning_HASH {
		prefix = keys.HashPrefixLength
	}
	return o.SplitKey[min(prefix, len(o.SplitKey)):]
}
