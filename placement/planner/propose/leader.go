package propose

import (
	"cmp"
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// correctLeader hands leadership over to a node that should lead.
func (pr *Proposer) correctLeader(f objective.Finding) (planner.Operator, Outcome) {
	p := &pr.state.Partitions[f.Partition]
	c := newChange(f.Partition, planner.Transfer)
	c.reason = planner.Reason{Cause: f.Cause, Node: pr.state.NodeID(p.Leader)}
	switch f.Cause {
	case planner.LeaderWanted:
		c.lead = p.Leads
	case planner.LeaderPreferred:
		c.reason.Rules = pr.state.Keyspaces[p.Keyspace].Wants.Leaders.String()
		c.lead, c.rejected = pr.bestLeader(p, p.Leader)
	default:
		c.lead, c.rejected = pr.bestLeader(p, p.Leader)
	}
	if c.lead == state.NoNode {
		// No other voter can lead. If something is wrong with the places of the replicas as well, a new
		// replica can come and lead.
		x := pr.objective.Inspect(p)
		f = objective.Finding{Partition: f.Partition, Urgency: objective.UrgencyNone,
			At: state.NoReplica}
		if x.Settled {
			pr.objective.CheckPlace(p, &x, &f)
		}
		if f.Urgency == objective.UrgencyNone {
			return planner.Operator{}, Stuck
		}
		return pr.attempt(f)
	}
	if pr.state.Nodes[c.lead].Transfers >= pr.state.Settings().TransfersInFlight {
		return planner.Operator{}, Waits
	}
	return pr.complete(c)
}

// contender is a voter that could lead, and what the objective says of it.
type contender struct {
	node uint16
	// avoids: the node leaves leadership to others at present.
	avoids bool
	// cost is that of objective.LeaderCost.
	cost int
	// excess is by how many percent of its share the load of the node would be above its band.
	excess int
	// fill is the sum of the deviations of the node in load and leaders.
	fill float64
}

// compareContenders compares two contenders: negative if a is better. It returns the level that
// decided.
func (pr *Proposer) compareContenders(a, b *contender) (planner.Level, int) {
	switch {
	case a.avoids != b.avoids:
		return planner.LevelLeader, orderOf(a.avoids)
	case a.cost != b.cost:
		return planner.LevelLeader, a.cost - b.cost
	case a.excess != b.excess:
		return planner.LevelLoad, a.excess - b.excess
	case a.fill < b.fill:
		return planner.LevelLeaders, -1
	case a.fill > b.fill:
		return planner.LevelLeaders, 1
	}
	return planner.Levels, cmp.Compare(pr.state.NodeID(a.node), pr.state.NodeID(b.node))
}

// bestLeader finds the best voter to lead, other than one node, and the second best as the
// alternative.
func (pr *Proposer) bestLeader(p *state.Partition, except uint16) (uint16, *planner.Alternative) {
	best, second := contender{node: state.NoNode}, contender{node: state.NoNode}
	for _, r := range pr.state.Replicas(p) {
		if r.Node == except || !pr.objective.MayLead(r) {
			continue
		}
		c := contender{node: r.Node, avoids: pr.objective.AvoidsLeading(r.Node),
			cost: pr.objective.LeaderCost(p, r.Node)}
		more, one := int64(p.LeaderLoad)-int64(p.FollowerLoad), int64(1)
		if r.Node == p.Leads {
			more, one = 0, 0
		}
		c.excess = percentAbove(pr.objective.Outside(planner.ByLoad, r.Node, more))
		c.fill = pr.objective.Deviation(planner.ByLoad, r.Node, more) +
			pr.objective.Deviation(planner.ByLeaders, r.Node, one)
		if best.node == state.NoNode {
			best = c
		} else if _, order := pr.compareContenders(&c, &best); order < 0 {
			best, second = c, best
		} else if second.node == state.NoNode {
			second = c
		} else if _, order := pr.compareContenders(&c, &second); order < 0 {
			second = c
		}
	}
	if second.node == state.NoNode {
		return best.node, nil
	}
	level, _ := pr.compareContenders(&best, &second)
	out := &planner.Alternative{Node: pr.state.NodeID(second.node), Decided: level}
	switch {
	case best.avoids != second.avoids:
		out.Text = "it leaves leadership to others: " +
			pr.state.Nodes[second.node].Told.AvoidsLeading()
	case level == planner.LevelLeader:
		out.Text = "its keyspace prefers leaders elsewhere"
	case level == planner.LevelLoad:
		out.Text = fmt.Sprintf("load: it would be %d %% above what is tolerated, not %d %%",
			second.excess, best.excess)
	case level == planner.LevelLeaders:
		out.Text = fmt.Sprintf("it leads more: %.0f %% of its share in load and number, not %.0f %%",
			100+50*second.fill, 100+50*best.fill)
	default:
		out.Text = "it is as good; the lower id is taken"
	}
	return best.node, out
}
