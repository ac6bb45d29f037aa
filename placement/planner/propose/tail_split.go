package propose

import (
	"cmp"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

const (
	// leastTailGain is by how much of its share a node has to have less load than the leader of the
	// tail, so that leadership is transferred to it.
	leastTailGain = 0.1
	// leastTailMove is by how much of its share a node without a replica has to have less load than
	// the best node with one, so that a replica is moved to it.
	leastTailMove = 0.5
)

// placeTail has a new tail led by the node with the least load. Where keys ascend, all writes go to
// the partition with the largest keys. It is split by its size close to its end, so that the part
// that goes on growing is small and cheap to move. With each split the load goes to another node,
// and no node has all of it for long.
//
// The leader is a voter of the partition or, if another node has much less load, a new replica
// there.
func (pr *Proposer) placeTail(f objective.Finding) (planner.Operator, Outcome) {
	i := f.Partition
	p := &pr.state.Partitions[i]
	if !pr.objective.IsNewTail(i) {
		return planner.Operator{}, Stuck
	}
	leader := pr.state.LeaderOf(p)
	to := leader
	for _, r := range pr.state.Replicas(p) {
		if pr.objective.CanLead(r) &&
			pr.objective.LeaderCost(p, r.Node) <= pr.objective.LeaderCost(p, leader) &&
			pr.lessLoaded(p, r.Node, to) {
			to = r.Node
		}
	}
	c := newChange(i, planner.Transfer)
	c.lead = to
	at := pr.state.First(p, func(r state.Replica) bool { return r.Node == leader })
	if found := pr.search(p, int(at), false, true); found.usable() &&
		!pr.objective.AvoidsLeading(found.best.node) && pr.emptier(p, found.best.node, to) {
		c.kind, c.add, c.remove, c.lead = planner.Replace, found.best.node, leader, found.best.node
		c.found = found
	}
	if c.kind == planner.Transfer {
		if to == leader || pr.tailLoad(p, leader)-pr.tailLoad(p, to) < leastTailGain {
			return planner.Operator{}, Stuck
		}
		if pr.state.Nodes[to].Transfers >= pr.state.Settings().TransfersInFlight {
			return planner.Operator{}, Waits
		}
	} else if pr.objective.SenderBusy(leader) {
		return planner.Operator{}, Waits
	}
	from := pr.tailLoad(p, leader)
	to = c.lead
	there := pr.tailLoad(p, to)
	c.growth = [2]float64{1 + from, 1 + there}
	c.reason = planner.Reason{Cause: planner.NewTail,
		From:   &planner.Share{Node: pr.state.NodeID(leader), Before: from, After: from},
		To:     &planner.Share{Node: pr.state.NodeID(to), Before: there, After: there},
		Growth: &planner.GrowthReason{Ascending: int(pr.state.Growths[i].Ascending)}}
	return pr.complete(c)
}

// tailLoad is how far a node with a replica of the partition would be from its share of load if it
// led the partition.
func (pr *Proposer) tailLoad(p *state.Partition, n uint16) float64 {
	more := int64(0)
	if p.Leads != n {
		more = int64(p.LeaderLoad) - int64(p.FollowerLoad)
	}
	return pr.objective.Deviation(planner.ByLoad, n, more)
}

// lessLoaded says whether the tail should rather be led by a than by b: by their loads, then by
// their ids, but the present leader stays if it is as good.
func (pr *Proposer) lessLoaded(p *state.Partition, a, b uint16) bool {
	if x, y := pr.tailLoad(p, a), pr.tailLoad(p, b); x != y {
		return x < y
	}
	return cmp.Compare(pr.state.NodeID(a), pr.state.NodeID(b)) < 0 && b != pr.state.LeaderOf(p)
}

// emptier says whether a node without a replica has so much less load than another that a replica
// is to be moved there.
func (pr *Proposer) emptier(p *state.Partition, n, than uint16) bool {
	with := pr.objective.Deviation(planner.ByLoad, n, int64(p.LeaderLoad))
	return pr.tailLoad(p, than)-with >= leastTailMove
}
