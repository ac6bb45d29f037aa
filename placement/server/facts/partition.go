package facts

import (
	"bytes"
	"time"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/server/reports"
	"github.com/tidemarkdb/tidemark/placement/server/steps"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// plannerGrowth returns the planner's form of a partition's growth. Reports about an earlier
// generation, or about keys at which the partition cannot be split, are ignored.
func plannerGrowth(d *clusterpb.Partition, r *clusterpb.PartitionReport) planner.Growth {
	if r.GetGeneration() != d.Generation {
		return planner.Growth{}
	}
	out := planner.Growth{Sustained: planner.Cores(limited(r.SustainedLoadMicro)),
		Peak: planner.Cores(limited(r.PeakLoadMicro))}
	h := r.Split
	if h == nil {
		return out
	}
	point := func(k *clusterpb.SplitKey) *planner.SplitPoint {
		if k == nil {
			return nil
		}
		at := keys.InternalKey(d, k.Key)
		if span := keys.PartitionSpan(d); !span.Contains(at) || bytes.Equal(at, span.Start) {
			return nil
		}
		return &planner.SplitPoint{Key: k.Key, Left: int(k.Left), Right: int(k.Right),
			Across: int(k.Across)}
	}
	out.ByLoad, out.BySize = point(h.ByLoad), point(h.BySize)
	out.OneKey = h.OneKey
	out.HotKey, out.Hot = h.HotKey, int(h.HotThousandths)
	out.Ascending = int(h.AscendingThousandths)
	return out
}

// Around has facts that the scheduler knows about a partition apart from its descriptor and its
// reports.
type Around struct {
	Left, Right    keys.PartitionID
	Resized, Ended time.Time
}

// maxPartitionBytes limits the reported size of a partition that is believed. The sum over all
// replicas of a cluster then stays below 2^63.
const maxPartitionBytes = 1 << 42

// roles maps the roles in a descriptor to the planner's roles.
var roles = map[clusterpb.ReplicaRole]planner.Role{
	clusterpb.ReplicaRole_VOTER:    planner.Voter,
	clusterpb.ReplicaRole_LEARNER:  planner.Learner,
	clusterpb.ReplicaRole_INCOMING: planner.Incoming,
	clusterpb.ReplicaRole_OUTGOING: planner.Outgoing,
	clusterpb.ReplicaRole_DEMOTED:  planner.Outgoing,
}

// Partition returns the planner's form of a partition. Its inputs are the newest descriptor, the
// reports of the leader and the nodes, and the surroundings.
func Partition(
	d *clusterpb.Partition, seen reports.Partition, at Around,
) planner.Partition {
	p := planner.Partition{ID: keys.PartitionID(d.Id), Keyspace: keys.KeyspaceID(d.Keyspace),
		Epoch:  planner.Epoch{Generation: d.Generation, Membership: d.Membership},
		Leader: seen.Leader, Ended: at.Ended, Resized: at.Resized, Left: at.Left, Right: at.Right,
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
