package objective

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// Costs of a leader, as in planner.LevelLeader.
const (
	shouldNotLead = 1
	mustNotLead   = 2
)

// LeaderCost says how wrong it would be that a node leads a partition, if the node were wanted as
// leader.
func (o *Objective) LeaderCost(p *state.Partition, leader uint16) int {
	if leader == state.NoNode {
		return 0
	}
	if o.state.Nodes[leader].Condition.Is(state.Drained) {
		return mustNotLead
	}
	if ks := &o.state.Keyspaces[p.Keyspace]; len(ks.Preferred) > 0 && !ks.Preferred[leader] {
		for _, r := range o.state.Replicas(p) {
			if ks.Preferred[r.Node] && o.CanLead(r) {
				return shouldNotLead
			}
		}
	}
	return 0
}

// PresentLeaderCost says how wrong it is that a node leads a partition. Beyond LeaderCost it is
// wrong that another node is wanted as leader that can lead and would be no worse.
func (o *Objective) PresentLeaderCost(p *state.Partition, leader uint16) int {
	cost := o.LeaderCost(p, leader)
	if leader != state.NoNode && p.Leads != leader && p.Leads == p.Wanted &&
		p.Leads != state.NoNode && o.LeaderCost(p, p.Leads) <= cost {
		cost = max(cost, shouldNotLead)
	}
	return cost
}

// MustNotLead says whether the node that leads a partition must not lead.
func (o *Objective) MustNotLead(p *state.Partition) bool {
	return o.LeaderCost(p, p.Leader) == mustNotLead
}

// CanLead says whether leadership can be given to a replica, and would stay there.
func (o *Objective) CanLead(r state.Replica) bool {
	return o.MayLead(r) && !o.AvoidsLeading(r.Node)
}

// MayLead says whether leadership can be given to a replica if no other replica can lead. A node
// with a slow disk serves all the same.
func (o *Objective) MayLead(r state.Replica) bool {
	n := &o.state.Nodes[r.Node]
	return r.Role == planner.Voter && r.Damage == planner.Sound && n.Condition.Is(state.Open) &&
		!n.Told.DiskFull && !n.Told.ClockWrong
}

// AvoidsLeading says whether a node leaves leadership to others at present.
func (o *Objective) AvoidsLeading(n uint16) bool {
	return o.state.Nodes[n].Told.AvoidsLeading() != ""
}
