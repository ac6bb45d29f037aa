package server

import (
	"fmt"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/assign"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/server/meta"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/placement/store"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// What the planner is told of nodes, keyspaces and partitions, made of what the core has of them.

// plannerNode is what the planner is told of a node, without what the node itself reports.
func plannerNode(n *clusterpb.Node) planner.Node {
	out := planner.Node{ID: keys.NodeID(n.Id), Region: n.Locality.GetRegion(),
		Zone: n.Locality.GetZone(), Tags: n.Tags, Status: planner.Status(n.Status), Alive: n.Alive,
		Displaced: n.Displaced, Since: time.UnixMilli(n.AliveSinceUnixMs)}
	if !n.Alive && n.SilentSinceUnixMs != 0 {
		out.Since = time.UnixMilli(n.SilentSinceUnixMs)
	}
	return out
}

// withStats adds what the node reports; nil: nothing was reported yet.
func withStats(n planner.Node, stats *clusterpb.NodeStats) planner.Node {
	if stats == nil {
		return n
	}
	used, free := limited(stats.DiskUsedBytes), limited(stats.DiskFreeBytes)
	n.DiskUsed, n.DiskCapacity = used, used+free
	if stats.DiskFull {
		n.DiskCapacity = used
	}
	n.DiskSlow, n.DiskFull, n.ClockWrong = stats.DiskSlow, stats.DiskFull, stats.ClockUnhealthy
	n.Processors = planner.Cores(limited(stats.ProcessorsMicro))
	n.Load = planner.Cores(limited(stats.LoadMicro))
	return n
}

// limited is a figure that a node reports, bounded so that sums of them fit.
func limited(figure uint64) int64 { return int64(min(figure, 1<<52)) }

// maxPartitionBytes bounds the size that is believed of a partition: all replicas that a cluster
// can have add up to less than 2^63.
const maxPartitionBytes = 1 << 42

// plannerKeyspace is what the planner is told of a keyspace.
func plannerKeyspace(k *clusterpb.Keyspace) (planner.Keyspace, error) {
	out := planner.Keyspace{ID: keys.KeyspaceID(k.Id), Name: k.Name,
		Replicas: int(k.ReplicationFactor), NoAuto: k.NoAuto,
		SplitSize: limited(k.SplitSizeBytes), MergeSize: limited(k.MergeSizeBytes)}
	var err error
	out.Rules, out.Leaders, err = parsePlacement(k.Placement, k.Leaders, out.Replicas)
	return out, err
}

// specOf is what has to be placed of a new keyspace, but for its number of partitions.
func specOf(k *clusterpb.Keyspace) (assign.Spec, error) {
	ks, err := plannerKeyspace(k)
	return assign.Spec{Keyspace: ks.ID, Replicas: ks.Replicas, Rules: ks.Rules,
		Leaders: ks.Leaders}, err
}

// parsePlacement reads the placement of a keyspace, and where its leaders should be.
func parsePlacement(
	placement, leaders string, replicas int,
) (rules.Rules, rules.Selectors, error) {
	wanted, err := rules.Parse(placement)
	if err != nil {
		return nil, nil, err
	}
	if err := wanted.Validate(replicas); err != nil {
		return nil, nil, err
	}
	if leaders == "" {
		return wanted, nil, nil
	}
	prefer, err := rules.ParseSelectors(leaders)
	if err != nil {
		return nil, nil, fmt.Errorf("preferred leaders: %w", err)
	}
	return wanted, prefer, nil
}

// roles are the planner's for those of the descriptor.
var roles = map[clusterpb.ReplicaRole]planner.Role{
	clusterpb.ReplicaRole_VOTER:    planner.Voter,
	clusterpb.ReplicaRole_LEARNER:  planner.Learner,
	clusterpb.ReplicaRole_INCOMING: planner.Incoming,
	clusterpb.ReplicaRole_OUTGOING: planner.Outgoing,
	clusterpb.ReplicaRole_DEMOTED:  planner.Outgoing,
}

// plannerPartition is what the planner is told of a partition: the newest descriptor there is, and
// what the leader and the nodes report, and what lies around it.
func plannerPartition(
	d *clusterpb.Partition, seen reports.Partition, at surroundings,
) planner.Partition {
	p := planner.Partition{ID: keys.PartitionID(d.Id), Keyspace: keys.KeyspaceID(d.Keyspace),
		Epoch:  planner.Epoch{Generation: d.Generation, Membership: d.Membership},
		Leader: seen.Leader, Ended: at.ended, Resized: at.resized, Left: at.left, Right: at.right,
		SplitFrom: keys.PartitionID(d.SplitFrom), Asked: d.BoundaryAsked,
		Growth: plannerGrowth(d, seen.Report), Replicas: make([]planner.Replica, 0, len(d.Replicas))}
	lead := steps.Wanted(d)
	for _, r := range d.Replicas {
		one := planner.Replica{Node: keys.NodeID(r.Node), Role: roles[r.Role]}
		if seen.Broken[one.Node] {
			one.Damage = planner.Broken
		}
		if r.Replica == lead {
			p.Wanted = one.Node
		}
		p.Replicas = append(p.Replicas, one)
	}
	if r := seen.Report; r != nil {
		p.Bytes = min(limited(r.SizeBytes), maxPartitionBytes)
		p.LeaderLoad = planner.Cores(limited(r.LeaderLoadMicro))
		p.FollowerLoad = planner.Cores(limited(r.FollowerLoadMicro))
		p.Measured = time.Duration(r.MeasuredSeconds) * time.Second
	}
	return p
}

// unchangedNode is the condition that the record of a node is what it is in a view, and its status
// there; GONE if there is no record.
func unchangedNode(v *store.View, id keys.NodeID) (*storepb.Compare, clusterpb.NodeStatus, error) {
	n := &clusterpb.Node{}
	revision, err := meta.Load(v, meta.NodeKey(id), n)
	if err == nil && revision == 0 {
		n.Status = clusterpb.NodeStatus_NODE_GONE
	}
	return store.ModifiedAt(meta.NodeKey(id), revision), n.Status, err
}

// isGone says whether a node was decommissioned.
func (s *Server) isGone(v *store.View, id keys.NodeID) bool {
	n := &clusterpb.Node{}
	revision, err := meta.Load(v, meta.NodeKey(id), n)
	return err == nil && revision != 0 && n.Status == clusterpb.NodeStatus_NODE_GONE
}

// candidates is the planner's view of the nodes.
func candidates(nodes []*clusterpb.Node) []planner.Node {
	out := make([]planner.Node, len(nodes))
	for i, n := range nodes {
		out[i] = plannerNode(n)
	}
	return out
}
