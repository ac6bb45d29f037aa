package server

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/serverpb"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/server/veil"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// maxOperators bounds what is under way at a time, maxOrders what one heartbeat is answered with.
	maxOperators = 10_000
	maxOrders    = 1000
)

// MoveReplica records an operator that moves a replica. Only the leader does it.
func (s *Server) MoveReplica(
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
	// The node may be let go under another leader of the core before this is written.
	unchanged, _, err := meta.UnchangedNode(v, keys.NodeID(o.AddNode))
	if err != nil {
		return nil, s.meta.Status(err)
	}
	if err := s.begin(ctx, o, []*storepb.Compare{unchanged}); err != nil {
		return nil, s.meta.Status(err)
	}
	return &clusterpb.MoveReplicaResponse{Operator: o.Id}, nil
}

// underWay is the operator of a partition if it is the one that is asked for, so that a request
// which comes twice is answered twice; nil if it is not.
func underWay(v *store.View, partition uint64, same func(*serverpb.Operator) bool,
) (*serverpb.Operator, error) {
	o := &serverpb.Operator{}
	revision, err := meta.Load(v, meta.OperatorKey(keys.PartitionID(partition)), o)
	if err != nil || revision == 0 || o.Cancelled || !same(o) {
		return nil, err
	}
	return o, nil
}

// move makes the operator that was asked for, or says why there can be none.
func (s *Server) move(v *store.View, r *clusterpb.MoveReplicaRequest) (*serverpb.Operator, error) {
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
			nodesOf(d))
	case to == nil:
		return nil, status.Errorf(codes.NotFound, "there is no node %d", r.ToNode)
	case !to.Alive:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d is not alive", r.ToNode)
	case to.Status != clusterpb.NodeStatus_NODE_ACTIVE:
		return nil, status.Errorf(codes.FailedPrecondition, "node %d is being taken out: it is %s; "+
			"`tidemark node undo %d` takes that back", r.ToNode, statusText(to.Status), r.ToNode)
	}
	return &serverpb.Operator{Partition: d.Id, Keyspace: d.Keyspace, AddNode: r.ToNode,
		AddReplica: steps.NextReplica(d), RemoveReplica: out.Replica, RemoveNode: out.Node,
		Reason: "asked for", Kind: planner.Replace.String(),
		Bytes:         s.reports.Of(keys.PartitionID(d.Id)).Report.GetSizeBytes(),
		CreatedUnixMs: time.Now().UnixMilli(), Lead: steps.Wanted(d) == out.Replica}, nil
}

// nodesOf names the nodes of a partition's replicas.
func nodesOf(d *clusterpb.Partition) string {
	text := "node"
	if len(d.Replicas) > 1 {
		text += "s"
	}
	for i, r := range d.Replicas {
		separator := ", "
		if i == 0 {
			separator = " "
		}
		text += fmt.Sprintf("%s%d", separator, r.Node)
	}
	return text
}

// CancelOperator has a partition's operator taken back.
func (s *Server) CancelOperator(
	ctx context.Context, r *clusterpb.CancelOperatorRequest,
) (*clusterpb.CancelOperatorResponse, error) {
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	id := keys.PartitionID(r.Partition)
	by, _, err := meta.LoadID(v, meta.HeldKey(id)) // that which is merged with its left neighbour
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
	s.poke()
	return &clusterpb.CancelOperatorResponse{}, nil
}

// markCancelled has an operator go back to where it was from.
func (s *Server) markCancelled(v *store.View, o *serverpb.Operator, why string) error {
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

// ListOperators lists what is under way.
func (s *Server) ListOperators(
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

// ordersFor are the next steps for partitions that a node leads.
func (s *Server) ordersFor(node keys.NodeID) ([]*clusterpb.Order, error) {
	led := s.reports.OperatorsOf(node)
	if len(led) == 0 {
		return nil, nil
	}
	v := s.store.Stale()
	ranks := s.leadRanks(v)
	var orders []*clusterpb.Order
	for _, known := range led {
		// As it is stored: what is remembered may be of an earlier leadership.
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
		// Of a merge the step may be for the leader of the other one.
		if leader, _ := s.reports.Progress(of); next != nil && next.Order != nil && leader == node {
			orders = append(orders, next.Order)
		}
	}
	return orders, nil
}

// plausible says why a descriptor cannot follow another one, whatever their spans; nil if it can.
// None of the replicas before need be left if the partition was recovered: then it has the one with
// which it goes on.
func plausible(next, now *clusterpb.Partition, recovered *clusterpb.RecoveredPartition) error {
	if err := keys.ValidatePartition(next); err != nil {
		return err
	}
	if next.Keyspace != now.Keyspace {
		return fmt.Errorf("its keyspace is %d, and was %d", next.Keyspace, now.Keyspace)
	}
	members := group.ConfigurationOf(next)
	if err := members.Validate(); err != nil {
		return err
	}
	first := steps.NextReplica(now)
	kept := 0
	for _, r := range next.Replicas {
		switch before := steps.ReplicaOf(now, r.Replica); {
		case before != nil && before.Node == r.Node:
			kept++
		case before != nil:
			return fmt.Errorf("replica %d is on node %d, and was on node %d",
				r.Replica, r.Node, before.Node)
		case r.Replica < first:
			return fmt.Errorf("replica %d comes, and was removed before", r.Replica)
		}
	}
	switch {
	case kept == 0 && !isRecovered(next, recovered):
		return fmt.Errorf("none of its replicas is left, and no recovery of it was confirmed")
	case len(next.Replicas) > maxReplicas:
		return fmt.Errorf("it has %d replicas, at most %d", len(next.Replicas), maxReplicas)
	case steps.NextReplica(next) < first || steps.NextReplica(next) > first+maxSteps:
		return fmt.Errorf("its next replica has the number %d, and had %d", steps.NextReplica(next),
			first)
	case next.Membership < now.Membership || next.Membership > now.Membership+maxSteps:
		return fmt.Errorf("its membership is %d, and was %d", next.Membership, now.Membership)
	case next.Generation > now.Generation+maxSteps:
		return fmt.Errorf("its generation is %d, and was %d", next.Generation, now.Generation)
	}
	return nil
}

const (
	// maxReplicas bounds the replicas of a partition, those that come and go included; maxSteps how
	// many changes of it the table may have missed.
	maxReplicas = 16
	maxSteps    = 1 << 20
)
