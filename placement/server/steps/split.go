package steps

import (
	"bytes"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// SplitKind is the name of operators that split a partition.
const SplitKind = "split"

// Splits reports whether an operator splits its partition.
func Splits(o *serverpb.Operator) bool { return len(o.GetSplitKey()) > 0 }

// A split follows the same rule as a change of replicas: the next step follows from the descriptor.
// The caller has ended a joint configuration that was left over.
//
//	the generation has changed      it is done, or no longer possible: each split raises it
//	the operator is cancelled       raise the membership, so that an order that is on its way does
//	                                not fit; then it is done
//	there is a learner              remove it: its operator is gone
//	all replicas vote               have the partition split
//
// The table shows the parent's next generation only together with the child. So when an operator is
// done, both are in the table.
func splitStep(o *serverpb.Operator, d *clusterpb.Partition) Step {
	next := proto.Clone(d).(*clusterpb.Partition)
	change := func(format string, args ...any) Step {
		next.Membership++
		return Step{Order: &clusterpb.Order{Operator: o.Id, Target: next},
			Text: fmt.Sprintf(format, args...)}
	}
	switch {
	case d.Generation != o.Generation && bytes.Equal(d.End, o.SplitKey):
		return Step{Done: true, Text: DoneText}
	case d.Generation != o.Generation:
		return Step{Done: true, Text: "its span changed meanwhile"}
	case o.Cancelled && d.Membership <= o.CancelledAt:
		return change("keeps the partition whole")
	case o.Cancelled:
		return Step{Done: true, Text: "was cancelled"}
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
	return Step{Order: &clusterpb.Order{Operator: o.Id, Target: next, Child: child},
		Text: fmt.Sprintf("splits at %s", keys.Pretty(keys.UserKey(d, o.SplitKey)))}
}

// AllVote reports whether all replicas of a partition are voters, and stay voters.
func AllVote(d *clusterpb.Partition) bool {
	for _, r := range d.Replicas {
		if r.Role != clusterpb.ReplicaRole_VOTER {
			return false
		}
	}
	return true
}

// SplitAt returns the user key at which an operator splits. It returns nil if the operator does not
// split, or if the keyspace is gone.
func SplitAt(ks *clusterpb.Keyspace, o *serverpb.Operator) []byte {
	if ks == nil || !Splits(o) {
		return nil
	}
	prefix := keys.KeyspacePrefixLength
	if ks.Partitioning == clusterpb.Partitioning_HASH {
		prefix = keys.HashPrefixLength
	}
	return o.SplitKey[min(prefix, len(o.SplitKey)):]
}

// NewSplit makes the operator that splits a partition at an internal key. The operator has no
// reason yet. It gets its id, and the id of the child, when it is recorded.
func NewSplit(d *clusterpb.Partition, key []byte) (*serverpb.Operator, error) {
	span := keys.PartitionSpan(d)
	if !span.Contains(key) || bytes.Equal(key, span.Start) {
		if bytes.HasPrefix(key, keys.PartitionPrefix(d)) {
			key, span = keys.UserKey(d, key), keys.PartitionUserSpan(d)
		}
		return nil, status.Errorf(codes.InvalidArgument, "partition %d cannot split at %s: its span "+
			"is %s, and the key has to be inside", d.Id, keys.Pretty(key), span)
	}
	return &serverpb.Operator{Partition: d.Id, Keyspace: d.Keyspace, SplitKey: bytes.Clone(key),
		Generation: d.Generation, Kind: SplitKind, CreatedUnixMs: time.Now().UnixMilli()}, nil
}
