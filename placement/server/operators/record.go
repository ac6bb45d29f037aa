package operators

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// giveReasons copies the reasons of the planner into a stored operator.
func giveReasons(o *serverpb.Operator, p *planner.Operator) {
	o.Reason, o.ScoreBefore, o.ScoreAfter = p.Reason.String(), p.Before.String(), p.After.String()
	if p.Rejected != nil {
		o.Rejected = p.Rejected.String()
	}
}

// begin records an operator, if its partition has none and the conditions hold. The caller has the
// turn.
func (s *Operators) begin(ctx context.Context, o *serverpb.Operator,
	conditions []*storepb.Compare) error {
	ids, revision, err := meta.LoadIDs(s.store.Stale())
	if err != nil {
		return err
	}
	o.Id = ids.Operator
	ids.Operator++
	if steps.Splits(o) {
		// The id is not given out again, even if the split fails.
		o.Child = ids.Partition
		ids.Partition++
	}
	key := meta.OperatorKey(keys.PartitionID(o.Partition))
	conditions = append(conditions, store.Absent(key),
		store.Absent(meta.HeldKey(keys.PartitionID(o.Partition))),
		store.ModifiedAt([]byte(meta.IDsKey), revision))
	ops := []*storepb.Op{store.Put(key, meta.Encode(o)),
		store.Put([]byte(meta.IDsKey), meta.Encode(ids))}
	if steps.Merges(o) {
		right := keys.PartitionID(o.Right)
		conditions = append(conditions, store.Absent(meta.HeldKey(right)))
		if !o.Cancelled {
			conditions = append(conditions, store.Absent(meta.OperatorKey(right)))
		} // else it only has the right one thaw, for which an operator of the right one may wait
		ops = append(ops, store.Put(meta.HeldKey(right), meta.EncodeID(o.Partition)))
	}
	meta.Answer(ctx, answerOf(o))
	ok, err := s.meta.Commit(ctx, conditions, ops...)
	if err != nil {
		return err
	}
	if !ok {
		return meta.Conflict(fmt.Sprintf("partition %d", o.Partition))
	}
	s.config.Logger.Info("operator begins", "operator", o.Id, "kind", o.Kind, "partition",
		o.Partition, "to", o.AddNode, "from", o.RemoveNode, "leader", o.LeadNode, "child", o.Child,
		"right", o.Right, "because", o.Reason)
	s.reports.BeginOperator(o)
	s.config.Poke()
	return nil
}

// answerOf returns the answer to the call that asked for an operator.
func answerOf(o *serverpb.Operator) proto.Message {
	switch {
	case steps.Merges(o):
		return &clusterpb.MergePartitionResponse{Operator: o.Id, Partition: o.Partition, Right: o.Right}
	case steps.Splits(o):
		return &clusterpb.SplitPartitionResponse{Operator: o.Id, Partition: o.Partition, Child: o.Child}
	case o.AddNode == 0:
		return &clusterpb.TransferLeaderResponse{Operator: o.Id}
	}
	return &clusterpb.MoveReplicaResponse{Operator: o.Id}
}

// GiveUp cancels an operator, if it still exists.
func (s *Operators) GiveUp(ctx context.Context, o *serverpb.Operator, why string) error {
	key := meta.OperatorKey(keys.PartitionID(o.Partition))
	now := &serverpb.Operator{}
	v := s.store.Stale()
	revision, err := meta.Load(v, key, now)
	if err != nil || revision == 0 || now.Id != o.Id || now.Cancelled {
		return err
	}
	if err := s.markCancelled(v, now, why); err != nil {
		return err
	}
	ok, err := s.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(key, revision)},
		store.Put(key, meta.Encode(now)))
	if err != nil || !ok {
		return err
	}
	s.config.Logger.Warn("operator is cancelled", "operator", o.Id, "partition", o.Partition,
		"because", why)
	s.reports.BeginOperator(now)
	s.config.Poke()
	return nil
}

// markCancelled marks an operator as cancelled: it then goes back to the state before it began.
func (s *Operators) markCancelled(v *store.View, o *serverpb.Operator, why string) error {
	d, _, err := meta.LoadPartition(v, keys.KeyspaceID(o.Keyspace), keys.PartitionID(o.Partition))
	if err != nil {
		return err
	}
	if d != nil && !o.Cancelled {
		o.CancelledAt = s.reports.Newest(keys.PartitionID(o.Partition), d).Membership
	}
	if steps.Merges(o) && !o.Cancelled {
		right := keys.PartitionID(o.Right)
		d, _, err := meta.LoadPartition(v, keys.KeyspaceID(o.Keyspace), right)
		if err != nil {
			return err
		}
		if d != nil {
			o.RightCancelledAt = s.reports.Newest(right, d).Membership
		}
	}
	o.Cancelled, o.Outcome = true, why
	return nil
}
