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

// A partition that has lost its majority for good goes on from one replica, with another id, by a
// deliberate act on the directories of servers that do not run (package recovery). To the core its
// descriptor looks like a mistake: none of the replicas that it knew is left. So an administrator
// tells it of the plan. The core makes the lost nodes GONE, keeps what the plan says of each
// partition as a record, and takes exactly these descriptors when they are reported.
//
// The order does not matter: before the plan was carried out nothing is reported, and before it was
// confirmed what is reported is refused.
//
// INVARIANT: a plan that was made without hearing of a later change of a partition's replicas does
// not take the partition away from a majority that goes on by itself.

// recoveryBatch is how many records are written in one transaction.
const recoveryBatch = 100

// recoversOn says whether a partition goes on from a replica on a node by a confirmed recovery, and
// that has not been reported yet: no descriptor names the node for it then.
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

// ConfirmRecovery takes note of a recovery. Only the leader does it.
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
			// It has split off, and the table does not have it yet.
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
		s.reports.Forget(id) // it reports everything once more
	}
	s.config.Poke()
	return response, nil
}

// checkRecovery says why a plan is not for this cluster as it is.
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

// giveUpNode makes a node GONE, for good.
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
