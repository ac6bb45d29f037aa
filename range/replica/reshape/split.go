package reshape

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// A partition splits by an entry of its log. No data moves: the entry replaces its descriptor by
// one that ends earlier, and makes another partition of the rest, the child, on every node that has
// a replica.
//
// Statistics stay exact. The leader counts the child's part in a snapshot of the engine, while
// other work goes on, and from the moment of the snapshot keeps account of what is written and
// removed there (split_stats.go). The entry is evaluated with nothing in flight, so both together
// are the child's statistics.
//
// From the evaluation of the entry until its fate is known nothing is evaluated, and reads wait.
// The entry closes every timestamp at which the leader has served a read, like the entry of a
// leader that hands over: the child's leaders write above that timestamp, and know nothing else of
// what was served.
//
// Applying the entry is one batch (Split.Stage). The child's log is made after that. When a node
// starts, range/node looks for crashes in between, and for crashes that took back the batch and
// left the log.

const (
	// ChildIndex and ChildTerm are the applied index and term of a child when it is made. They are
	// above zero: a replica that has nothing cannot be sent the log from its beginning, only a
	// snapshot.
	ChildIndex = 10
	ChildTerm  = 5
)

// FirstIndex returns the index of the first entry of a partition's log.
func FirstIndex(d *clusterpb.Partition) uint64 {
	if d.GetSplitFrom() != 0 {
		return ChildIndex + 1
	}
	return 1
}

// Split splits the partition, if this replica leads. left is the descriptor of the partition after
// the split, right that of the child, without the index of the entry. Split returns when the split
// is applied here. When ctx ends first, it may still take effect.
func (r *Reshaper) Split(ctx context.Context, left, right *clusterpb.Partition) error {
	if err := r.split(ctx, left, right); err != nil {
		return fmt.Errorf("partition %s: splitting it: %w", r.replica.ID(), err)
	}
	return nil
}

func (r *Reshaper) split(ctx context.Context, left, right *clusterpb.Partition) error {
	if err := CheckSplit(r.replica.Descriptor(), left, right); err != nil {
		return err
	}
	t, err := r.BeginSplitStats(ctx, right)
	if err != nil {
		return err
	}
	defer r.EndSplitStats(t)
	if err := t.Count(ctx, r.pacer); err != nil {
		return err
	}
	leftValue, err := proto.Marshal(left)
	if err != nil {
		return err
	}
	rightValue, err := proto.Marshal(right)
	if err != nil {
		return err
	}
	_, err = r.replica.Propose(ctx, proposal.KindSplit, func(e Evaluation) (bool, error) {
		if err := CheckSplit(e.Descriptor(), left, right); err != nil {
			return false, err
		}
		// The entry closes what an earlier leader has served, too.
		if err := e.ClockConfirmed(); err != nil {
			return false, err
		}
		stats, err := e.TakeSplitStats(t)
		if err != nil {
			return false, err
		}
		id := keys.PartitionID(right.Id)
		err = set(e, local{keys.LocalKey(r.replica.ID(), keys.SuffixDescriptor), leftValue},
			local{keys.LocalKey(id, keys.SuffixDescriptor), rightValue},
			local{keys.LocalKey(id, keys.SuffixApplied), (&storage.Record{Stats: stats}).Append(nil)})
		if err != nil {
			return false, err
		}
		e.Changes(proposal.Delta{LiveKeys: -int64(stats.LiveKeys), Versions: -int64(stats.Versions),
			Bytes: -int64(stats.Bytes), Expiring: -int64(stats.Expiring)}, hlc.Timestamp{})
		return true, e.HoldBack()
	})
	return err
}

// CheckSplit reports why a partition cannot split into two others.
func CheckSplit(now, left, right *clusterpb.Partition) error {
	if err := keys.ValidatePartition(left); err != nil {
		return err
	}
	if err := keys.ValidatePartition(right); err != nil {
		return err
	}
	if err := allVoters(now); err != nil {
		return err
	}
	whole, l, c := keys.PartitionSpan(now), keys.PartitionSpan(left), keys.PartitionSpan(right)
	switch members := group.ConfigurationOf(now); {
	case left.Id != now.Id || right.Id == now.Id || right.Id == 0:
		return fmt.Errorf("the parts are of the partitions %d and %d", left.Id, right.Id)
	case !l.Equal(keys.Span{Start: whole.Start, End: c.Start}) ||
		!c.Equal(keys.Span{Start: c.Start, End: whole.End}) || !whole.Contains(c.Start) || l.Empty():
		return fmt.Errorf("%s and %s are not the parts of %s", l, c, whole)
	case left.Generation != now.Generation+1 || right.Generation != left.Generation:
		return fmt.Errorf("generations %d and %d do not follow generation %d", left.Generation,
			right.Generation, now.Generation)
	case left.Membership != now.Membership || right.Membership != now.Membership:
		return fmt.Errorf("memberships %d and %d are not that of the partition, %d", left.Membership,
			right.Membership, now.Membership)
	case left.Keyspace != now.Keyspace || right.Keyspace != now.Keyspace ||
		left.PrefixLength != now.PrefixLength || right.PrefixLength != now.PrefixLength ||
		left.Hash != now.Hash || right.Hash != now.Hash:
		return errors.New("the parts are of another keyspace, or hash partition")
	case now.Frozen != nil || left.Frozen != nil || right.Frozen != nil:
		return errors.New("it is frozen, for its left neighbour is to consume it")
	case left.SplitFrom != now.SplitFrom || left.SplitIndex != now.SplitIndex ||
		right.SplitFrom != now.Id || right.SplitIndex != 0:
		return errors.New("the parts do not say what they came from")
	case !sameReplicas(now, left) || !sameReplicas(now, right):
		return fmt.Errorf("the parts have other replicas than %s", members.String())
	}
	return nil
}

// sameReplicas reports whether two descriptors have the same replicas on the same nodes.
func sameReplicas(a, b *clusterpb.Partition) bool {
	if len(a.Replicas) != len(b.Replicas) || a.NextReplica != b.NextReplica {
		return false
	}
	for i := range a.Replicas {
		if !proto.Equal(a.Replicas[i], b.Replicas[i]) {
			return false
		}
	}
	return true
}
