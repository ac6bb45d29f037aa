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
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// Move records an operator that moves a replica. Only the leader answers.
func (s *Operators) Move(
	ctx context.Context, r *clusterpb.MoveReplicaRequest,
) (*clusterpb.MoveReplicaResponse, error) {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	same := func(o *serverpb.Operator) bool {
		return o.AddNode == r.ToNode && o.RemoveNode == r.FromNode
	}
	if o, err := underWay(v, r.Partition, same); o != nil || err != nil {
		return &clusterpb.MoveReplicaResponse{Operator: o.GetId()}, s.meta.Status(err)
	}
	o, err := s.move(v, r)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	// Another leader of the core may decommission the node before the operator is written.
	unchanged, _, err := meta.UnchangedNode(v, keys.NodeID(o.AddNode))
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := s.begin(ctx, o, []*storepb.Compare{unchanged}); err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.MoveReplicaResponse{Operator: o.Id}, nil
}

// move makes the operator that a user asked for, or returns an error if it is not possible.
func (s *Operators) move(v *store.View, r *clusterpb.MoveReplicaRequest) (*serverpb.Operator, error) {
	d, err := s.toChange(v, r.Partition)
	if err != nil {
		return nil, err
	}
	nodes, err := meta.LoadNodes(v)
	if err != nil {
		return nil, err
	}
	var out *clusterpb.Replica
	for _, replica := range d.Replicas {
		if replica.Node == r.ToNode {
			return nil, status.Errorf(codes.FailedPrecondition,
				"node %d has a replica of partition %d already", r.ToNode, r.Partition)
		}
		if replica.Node == r.FromNode {
			out = replica
		}
	}
	var to *clusterpb.Node
	for _, n := range nodes {
		if n.Id == r.ToNode {
			to = n
		}
	}
	switch {
	case out == nil:
		return nil, status.Errorf(codes.FailedPrecondition,
			"node %d has no replica of partition %d: its replicas are on %s", r.FromNode, r.Partition,
			meta.NodesText(d))
	case to == nil:
		return nil, status.Errorf(codes.NotFound, "there is no node %d", r.ToNode)
	case !to.Alive:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d is not alive", r.ToNode)
	case to.Status != clusterpb.NodeStatus_NODE_ACTIVE:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d is being taken out: it is %s; "+
			"`tidemark node undo %d` takes that back", r.ToNode, meta.StatusText(to.Status), r.ToNode)
	}
	return &serverpb.Operator{Partition: d.Id, Keyspace: d.Keyspace, AddNode: r.ToNode,
		AddReplica: steps.NextReplica(d), RemoveReplica: out.Replica, RemoveNode: out.Node,
		Reason: "asked for", Kind: planner.Replace.String(),
		Bytes:         s.reports.Of(keys.PartitionID(d.Id)).Report.GetSizeBytes(),
		CreatedUnixMs: time.Now().UnixMilli(), Lead: steps.Wanted(d) == out.Replica}, nil
}
