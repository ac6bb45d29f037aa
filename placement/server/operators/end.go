package operators

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// EndDone ends the operators that are done.
func (s *Operators) EndDone(ctx context.Context) error {
	v := s.store.Stale()
	operators, err := meta.LoadOperators(v)
	if err != nil {
		return err
	}
	s.reports.SetOperators(operators)
	ranks := s.leadRanks(v)
	for _, o := range operators {
		next, _, err := s.nextOf(v, o, false, ranks)
		if err != nil {
			return err
		}
		text := "the partition is gone"
		if next != nil {
			if !next.Done {
				continue
			}
			text = next.Text
		}
		if err := s.finish(ctx, v, o, text); err != nil {
			return err
		}
	}
	return nil
}

// finish ends an operator, and writes an event about it.
func (s *Operators) finish(ctx context.Context, v *store.View, o *serverpb.Operator,
	text string) error {
	id := keys.PartitionID(o.Partition)
	revision, err := meta.Load(v, meta.OperatorKey(id), &serverpb.Operator{})
	if err != nil {
		return err
	}
	ks, err := meta.LoadKeyspace(v, keys.KeyspaceID(o.Keyspace))
	if err != nil {
		return err
	}
	if o.Cancelled && o.Outcome != "" && text != steps.DoneText {
		text = "cancelled: " + o.Outcome
	}
	took := max(0, time.Since(time.UnixMilli(o.CreatedUnixMs)))
	e := &clusterpb.Event{Kind: o.Kind, Partition: o.Partition, Keyspace: ks.Keyspace.GetName(),
		KeyspaceId: uint64(o.Keyspace),
		ToNode:     o.AddNode, FromNode: o.RemoveNode, LeadNode: o.LeadNode, Operator: o.Id,
		Reason: o.Reason, Outcome: text, TookMillis: uint64(took.Milliseconds()), Bytes: o.Bytes,
		ScoreBefore: o.ScoreBefore, ScoreAfter: o.ScoreAfter, Rejected: o.Rejected,
		Child: o.Child, SplitAt: steps.SplitAt(ks.Keyspace, o), Right: o.Right}
	ops := []*storepb.Op{store.Delete(meta.OperatorKey(id))}
	if steps.Merges(o) {
		ops = append(ops, store.Delete(meta.HeldKey(keys.PartitionID(o.Right))))
	}
	ok, err := s.meta.CommitEvent(ctx, e,
		[]*storepb.Compare{store.ModifiedAt(meta.OperatorKey(id), revision)}, ops...)
	if err != nil || !ok {
		return err
	}
	s.reports.EndOperator(id)
	s.metrics.ended(o, text, took)
	s.config.Logger.Info("operator has ended", "operator", o.Id, "kind", o.Kind, "partition", id,
		"outcome", text, "took", took.Round(time.Millisecond))
	return nil
}
