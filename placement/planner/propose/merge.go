package propose

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// merge makes the operator of a merge or, while the replicas of the two are not on the same nodes,
// of a move that brings them closer to that.
func (pr *Proposer) merge(f objective.Finding) (planner.Operator, Outcome) {
	i := f.Partition
	j, _ := pr.objective.MergesWith(i)
	if j == state.NoPartition {
		return planner.Operator{}, Stuck
	}
	p, q := &pr.state.Partitions[i], &pr.state.Partitions[j]
	if pr.objective.MergeWaits(i, j) != "" {
		return planner.Operator{}, Waits
	}
	ks := &pr.state.Keyspaces[p.Keyspace].Wants
	both := &planner.GrowthReason{Bytes: p.Bytes + q.Bytes, Size: ks.MergeSize, Neighbour: q.ID}
	if apart := pr.state.Apart(p, q); apart > 0 {
		return pr.align(i, j, apart)
	}
	if pr.objective.ResizeLimit(p) != "" {
		return planner.Operator{}, Waits
	}
	c := newChange(i, planner.Merge)
	c.right, c.resizes = q.ID, true
	c.reason = planner.Reason{Cause: planner.TooSmall, Growth: both}
	c.growth = [2]float64{1, 0}
	if k, ok := pr.state.PartitionIndex(pr.state.Growths[i].Left); ok {
		if m, _ := pr.objective.MergesWith(k); m == i {
			c.rejected = &planner.Alternative{Decided: planner.LevelGrowth, Text: fmt.Sprintf(
				"with its left neighbour %s: that is merged when it has its turn",
				pr.state.Partitions[k].ID)}
		}
	}
	op, o := pr.complete(c)
	if o != Proposed {
		return planner.Operator{}, Waits
	}
	op.RightEpoch = q.Epoch
	return op, o
}

// align moves a replica of the smaller one of two neighbours to a node of the other one. apart is
// how many replicas are not on the same nodes.
func (pr *Proposer) align(i, j uint32, apart int) (planner.Operator, Outcome) {
	moves, stands := j, i
	if p, q := &pr.state.Partitions[i], &pr.state.Partitions[j]; p.Bytes < q.Bytes {
		moves, stands = i, j
	}
	p, q := &pr.state.Partitions[moves], &pr.state.Partitions[stands]
	if pr.objective.SenderBusy(pr.state.LeaderOf(p)) {
		return planner.Operator{}, Waits
	}
	c := newChange(moves, planner.Replace)
	leave := pr.state.First(p, func(r state.Replica) bool {
		return !pr.state.HasReplica(q, r.Node) && r.Node != p.Leader
	})
	if leave == state.NoReplica {
		leave = pr.state.First(p, func(r state.Replica) bool {
			return !pr.state.HasReplica(q, r.Node)
		})
	}
	c.remove = pr.state.Replicas(p)[leave].Node
	for _, r := range pr.state.Replicas(q) {
		if pr.state.HasReplica(p, r.Node) || pr.objective.Refuse(p, r.Node, false) != planner.Allowed {
			continue
		}
		if c.add == state.NoNode || pr.state.NodeID(r.Node) < pr.state.NodeID(c.add) {
			c.add = r.Node
		}
	}
	if c.add == state.NoNode {
		return planner.Operator{}, Waits
	}
	c.reason = planner.Reason{Cause: planner.Misaligned, Node: pr.state.NodeID(c.remove),
		Growth: &planner.GrowthReason{Bytes: p.Bytes + q.Bytes, Neighbour: q.ID,
			Size: pr.state.Keyspaces[p.Keyspace].Wants.MergeSize}}
	c.growth = [2]float64{float64(1 + apart), float64(apart)}
	if op, o := pr.complete(c); o == Proposed {
		return op, o
	}
	return planner.Operator{}, Waits
}
