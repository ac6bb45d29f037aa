package nodes

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// If a partition has lost its majority permanently, it can continue from one replica, with another
// replica id. An operator does that by a deliberate action on the directories of stopped servers
// (package recovery). To the core the new descriptor looks like an error: none of the replicas that
// the core knew is left. So an administrator tells the core of the plan. The core makes the lost
// nodes GONE, stores the plan for each partition as a record, and accepts exactly these descriptors
// when they are reported.
//
// The order of the two actions does not matter. Before the plan is carried out, nothing is
// reported. Before the plan is confirmed, the report is refused.
//
// INVARIANT: a plan that misses a later change of a partition's replicas does not take the
// partition away from a majority that continues without a recovery.

// recoveryBatch is the number of records that are written in one transaction.
const recoveryBatch = 100

// recoversOn reports whether a partition continues from a replica on a node by a confirmed recovery
// that has not been reported yet. In that case no descriptor names the node for the partition.
func (s *Nodes) recoversOn(v *store.View, node keys.NodeID) (bool, error) {
	for r, err := range meta.All[clusterpb.RecoveredPartition](v, []byte(meta.RecoveryPrefix)) {
		if err != nil {
			return false, err
		}
		if keys.NodeID(r.Node) != node {
			continue
		}
		d, _, err := meta.LoadPartition(v, keys.KeyspaceID(r.Keyspace), keys.PartitionID(r.Partition))
		if err != nil || d != nil && d.Membership < r.Membership {
			return true, err
		}
	}
	return false, nil
}

// ConfirmRecovery records a recovery. Only the leader answers.
func (s *Nodes) ConfirmRecovery(
	ctx context.Context, r *clusterpb.ConfirmRecoveryRequest,
) (*clusterpb.ConfirmRecoveryResponse, error) {
	if r.Plan == "" || len(r.Plan) > meta.MaxTextBytes || len(r.LostNodes) == 0 ||
		len(r.Partitions) > meta.MaxPartitions {
		return nil, status.Error(codes.InvalidArgument,
			"a recovery has a plan's id, nodes that are lost, and partitions")
	}
	v, done, err := s.meta.ViewInTurn(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	if err := s.checkRecovery(v, r); err != nil {
		return nil, s.meta.Status(err)
	}
	for _, id := range r.LostNodes {
		if err := s.giveUpNode(ctx, v, keys.NodeID(id), r.Plan); err != nil {
			return nil, err
		}
	}
	response := &clusterpb.ConfirmRecoveryResponse{}
	var ops []*storepb.Op
	write := func() error {
		if len(ops) == 0 {
			return nil
		}
		_, err := s.meta.Commit(ctx, nil, ops...)
		ops = nil
		return err
	}
	operators, err := meta.LoadOperators(v)
	if err != nil {
		return nil, s.meta.Status(err)
	}
	coming := map[keys.PartitionID]bool{}
	for _, o := range operators {
		coming[keys.PartitionID(o.Child)] = steps.Splits(o)
	}
	survivors := map[keys.NodeID]bool{}
	for _, p := range r.Partitions {
		id := keys.PartitionID(p.Partition)
		d, _, err := meta.LoadPartition(v, keys.KeyspaceID(p.Keyspace), id)
		switch {
		case err != nil:
			return nil, s.meta.Status(err)
		case d == nil && coming[id]:
			// The partition has split off, and the table does not have it yet.
		case d == nil:
			response.Dropped++
			continue
		case steps.Recovered(d, p) || d.Membership >= p.Membership:
			response.Recovered++
			continue
		}
		response.Waiting++
		survivors[keys.NodeID(p.Node)] = true
		p.Plan = r.Plan
		ops = append(ops, store.Put(meta.RecoveryKey(id), meta.Encode(p)))
		if len(ops) == recoveryBatch {
			if err := write(); err != nil {
				return nil, err
			}
		}
	}
	if err := write(); err != nil {
		return nil, err
	}
	for id := range survivors {
		s.reports.Forget(id) // the node will report everything again
	}
	s.config.Poke()
	return response, nil
}

// checkRecovery returns an error if a plan does not fit the present state of this cluster.
func (s *Nodes) checkRecovery(v *store.View, r *clusterpb.ConfirmRecoveryRequest) error {
	alive, err := meta.LoadAlive(v)
	if err != nil {
		return err
	}
	lost := map[uint64]bool{}
	for _, id := range r.LostNodes {
		lost[id] = true
		revision, err := meta.Load(v, meta.NodeKey(keys.NodeID(id)), &clusterpb.Node{})
		switch {
		case err != nil:
			return err
		case revision == 0:
			return status.Errorf(codes.NotFound, "there is no node %d", id)
		case alive[id]:
			return status.Errorf(codes.FailedPrecondition, "node %d is alive, or was some seconds ago, "+
				"and the plan gives it up for good: switch it off first, and try again", id)
		}
	}
	for _, p := range r.Partitions {
		if p.GetPartition() == 0 || p.Node == 0 || p.Replica == 0 ||
			p.Membership <= p.KnownMembership ||
			lost[p.Node] {
			return status.Errorf(codes.InvalidArgument, "what the plan says of partition %d cannot be",
				p.GetPartition())
		}
		d, _, err := meta.LoadPartition(v, keys.KeyspaceID(p.Keyspace), keys.PartitionID(p.Partition))
		if err != nil {
			return err
		}
		if d == nil || d.Membership <= p.KnownMembership || d.Membership >= p.Membership {
			continue
		}
		members := group.ConfigurationOf(d)
		hosts := map[keys.ReplicaID]uint64{}
		for _, m := range members.Members {
			hosts[m.Replica] = m.Host
		}
		if members.Quorum(func(id keys.ReplicaID) bool { return !lost[hosts[id]] }) {
			return status.Errorf(codes.FailedPrecondition, "partition %d has its replicas on %s by now, "+
				"and a majority of them is not lost: the plan was made without them. Nothing was changed; "+
				"start those nodes, and make a new plan if one is still needed", p.Partition, meta.NodesText(d))
		}
	}
	return nil
}

// giveUpNode makes a node GONE permanently.
func (s *Nodes) giveUpNode(ctx context.Context, v *store.View, id keys.NodeID, plan string) error {
	n := &clusterpb.Node{}
	revision, err := meta.Load(v, meta.NodeKey(id), n)
	if err != nil {
		return s.meta.Status(err)
	}
	if n.Status == clusterpb.NodeStatus_NODE_GONE {
		return nil
	}
	n.Status = clusterpb.NodeStatus_NODE_GONE
	ok, err := s.meta.CommitEvent(ctx, &clusterpb.Event{Kind: "node", ToNode: uint64(id),
		Reason:  fmt.Sprintf("recovery by plan %s", plan),
		Outcome: "given up: it is refused from now on"},
		[]*storepb.Compare{store.ModifiedAt(meta.NodeKey(id), revision)},
		store.Put(meta.NodeKey(id), meta.Encode(n)))
	if err == nil && !ok {
		err = meta.Conflict("node " + id.String())
	}
	if err == nil {
		s.config.Logger.Warn("NODE IS GIVEN UP by a recovery; keep its directory switched off",
			"node", id, "plan", plan)
	}
	return err
}
