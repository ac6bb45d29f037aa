package operators

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Transfer records an operator that makes another replica the wanted leader and transfers the
// leadership to it. Only the leader answers.
func (s *Operators) Transfer(
	ctx context.Context, r *clusterpb.TransferLeaderRequest,
) (*clusterpb.TransferLeaderResponse, error) {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	same := func(o *serverpb.Operator) bool { return o.LeadNode == r.ToNode && o.AddNode == 0 }
	if o, err := underWay(v, r.Partition, same); o != nil || err != nil {
		return &clusterpb.TransferLeaderResponse{Operator: o.GetId()}, s.meta.Status(err)
	}
	o, err := s.transfer(v, r)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := s.begin(ctx, o, nil); err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.TransferLeaderResponse{Operator: o.Id}, nil
}

// transfer makes the operator that a user asked for, or returns an error if it is not possible.
func (s *Operators) transfer(v *store.View, r *clusterpb.TransferLeaderRequest,
) (*serverpb.Operator, error) {
	d, err := s.toChange(v, r.Partition)
	if err != nil {
		return nil, err
	}
	to := steps.ReplicaAt(d, keys.NodeID(r.ToNode))
	switch {
	case to == nil:
		return nil, status.Errorf(codes.FailedPrecondition,
			"node %d has no replica of partition %d: its replicas are on %s", r.ToNode, r.Partition,
			meta.NodesText(d))
	case to.Role != clusterpb.ReplicaRole_VOTER:
		return nil, status.Errorf(codes.FailedPrecondition,
			"the replica of partition %d on node %d does not vote yet, so it cannot lead", r.Partition,
			r.ToNode)
	}
	n := &clusterpb.Node{}
	if _, err := meta.Load(v, meta.NodeKey(keys.NodeID(r.ToNode)), n); err != nil {
		return nil, err
	}
	alive, err := v.Get(meta.AliveKey(keys.NodeID(r.ToNode)))
	if err != nil {
		return nil, err
	}
	switch {
	case alive == nil:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d is not alive", r.ToNode)
	case n.Status != clusterpb.NodeStatus_NODE_ACTIVE:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d is to lead nothing: it is %s",
			r.ToNode, meta.StatusText(n.Status))
	}
	ranks := s.leadRanks(v)
	leader, _ := s.reports.Progress(keys.PartitionID(d.Id))
	switch rank := ranks.of(r.ToNode); {
	case ranks.err != nil:
		return nil, ranks.err
	case rank == steps.LeadsNothing:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d cannot lead at present: its disk "+
			"is full or its clock is wrong; see `tidemark nodes`", r.ToNode)
	case rank == steps.LeadsBadly && ranks.of(uint64(leader)) == steps.LeadsWell:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d leaves leadership to others at "+
			"present, as its disk is slow; it would hand the lead back", r.ToNode)
	}
	return &serverpb.Operator{Partition: d.Id, Keyspace: d.Keyspace, Reason: "asked for",
		Kind: planner.Transfer.String(), CreatedUnixMs: time.Now().UnixMilli(),
		LeadNode: to.Node, LeadReplica: to.Replica}, nil
}
