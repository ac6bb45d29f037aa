package operators

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// List lists the operators that are under way.
func (s *Operators) List(
	ctx context.Context, _ *clusterpb.ListOperatorsRequest,
) (*clusterpb.ListOperatorsResponse, error) {
	v, err := s.meta.View(ctx)
	if err != nil {
		return nil, err
	}
	response := &clusterpb.ListOperatorsResponse{NowUnixMs: time.Now().UnixMilli()}
	operators, err := meta.LoadOperators(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	ranks := s.leadRanks(v)
	sees := veil.SightOf(ctx)
	for _, o := range operators {
		ks, err := meta.LoadKeyspace(v, keys.KeyspaceID(o.Keyspace))
		if err != nil {
			return nil, s.meta.Status(err)
		}
		info := &clusterpb.OperatorInfo{Operator: o.Id, Partition: o.Partition,
			Keyspace: ks.Keyspace.GetName(), ToNode: o.AddNode, FromNode: o.RemoveNode,
			LeadNode: o.LeadNode, Kind: o.Kind, Reason: o.Reason, CreatedUnixMs: o.CreatedUnixMs,
			Cancelled: o.Cancelled, Bytes: o.Bytes, ScoreBefore: o.ScoreBefore,
			ScoreAfter: o.ScoreAfter, Rejected: o.Rejected, Child: o.Child,
			SplitAt: steps.SplitAt(ks.Keyspace, o), Right: o.Right}
		next, of, err := s.nextOf(v, o, true, ranks)
		if err != nil {
			return nil, s.meta.Status(err)
		}
		if next != nil {
			leader, waits := s.reports.Progress(of)
			info.Step, info.WaitsFor = next.Text, waits
			if lack := s.reports.Lack(of); lack != "" {
				info.WaitsFor = lack
			}
			if leader == 0 {
				info.WaitsFor = "no leader of the partition has reported"
			}
		}
		sees.Operator(keys.KeyspaceID(o.Keyspace), info)
		response.Operators = append(response.Operators, info)
	}
	return response, nil
}

// Orders returns the next steps for partitions that a node leads.
func (s *Operators) Orders(node keys.NodeID) ([]*clusterpb.Order, error) {
	led := s.reports.OperatorsOf(node)
	if len(led) == 0 {
		return nil, nil
	}
	v := s.store.Stale()
	ranks := s.leadRanks(v)
	var orders []*clusterpb.Order
	for _, known := range led {
		// The operator is read from the store: the copy in the reports may be from an earlier leadership.
		o := &serverpb.Operator{}
		revision, err := meta.Load(v, meta.OperatorKey(keys.PartitionID(known.Partition)), o)
		if err != nil {
			return nil, err
		}
		if revision == 0 || len(orders) >= maxOrders {
			continue
		}
		next, of, err := s.nextOf(v, o, true, ranks)
		if err != nil {
			return nil, err
		}
		// The next step of a merge may be for the leader of the other partition.
		if leader, _ := s.reports.Progress(of); next != nil && next.Order != nil && leader == node {
			orders = append(orders, next.Order)
		}
	}
	return orders, nil
}
