package operators

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Cancel cancels a partition's operator.
func (s *Operators) Cancel(
	ctx context.Context, r *clusterpb.CancelOperatorRequest,
) (*clusterpb.CancelOperatorResponse, error) {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	id := keys.PartitionID(r.Partition)
	by, _, err := meta.LoadID(v, meta.HeldKey(id)) // if its left neighbour merges with it
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if by != 0 {
		id = keys.PartitionID(by)
	}
	o, key := &serverpb.Operator{}, meta.OperatorKey(id)
	revision, err := meta.Load(v, key, o)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if revision == 0 {
		return nil, status.Errorf(codes.NotFound, "nothing is under way in partition %d", r.Partition)
	}
	if err := s.markCancelled(v, o, "asked for"); err != nil {
		return nil, s.meta.Status(err)
	}
	answer := new(clusterpb.CancelOperatorResponse)
	meta.Answer(ctx, answer)
	ok, err := s.meta.Commit(ctx, []*storepb.Compare{store.ModifiedAt(key, revision)},
		store.Put(key, meta.Encode(o)))
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, meta.Conflict(fmt.Sprintf("partition %d", r.Partition))
	}
	s.config.Logger.Info("operator is cancelled", "operator", o.Id, "partition", o.Partition)
	s.reports.BeginOperator(o)
	s.config.Poke()
	return answer, nil
}
