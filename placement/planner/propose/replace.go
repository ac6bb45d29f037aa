package propose

import (
	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// replaceOne moves the replica whose move betters the partition most.
func (pr *Proposer) replaceOne(f objective.Finding) (planner.Operator, Outcome) {
	p := &pr.state.Partitions[f.Partition]
	if f.Urgency == objective.UrgencySpread && pr.state.Resting(p) {
		return planner.Operator{}, Waits
	}
	if pr.objective.SenderBusy(pr.state.LeaderOf(p)) {
		return planner.Operator{}, Waits
	}
	c := newChange(f.Partition, planner.Replace)
	c.reason = planner.Reason{Cause: f.Cause}
	var best change
	outcome := Stuck
	for at, r := range pr.state.Replicas(p) {
		if f.At != state.NoReplica && f.At != int8(at) ||
			f.At == state.NoReplica && !pr.movable(p, f.Cause, at) {
			continue
		}
		c.remove, c.found = r.Node, pr.search(p, at, f.Urgency == objective.UrgencyLeave, false)
		if !c.found.usable() {
			if o := c.found.outcome(); o == Waits && pr.wouldBetter(p, at, &c.found) {
				outcome = min(outcome, Waits)
			}
			continue
		}
		if best.kind != planner.Replace || best.found.found == 0 || c.better(&best, pr) {
			best = c
		}
	}
	if best.found.found == 0 {
		return planner.Operator{}, outcome
	}
	best.add = best.found.best.node
	pr.explainMove(&best)
	op, o := pr.complete(best)
	if o == Stuck {
		return op, outcome
	}
	return op, o
}

// better compares two moves of a partition: by the place of the new replica, then by whether the
// leader stays, then by the node that loses its replica.
func (c *change) better(d *change, pr *Proposer) bool {
	if c.found.best.betterPlaced(&d.found.best) || d.found.best.betterPlaced(&c.found.best) {
		return c.found.best.betterPlaced(&d.found.best)
	}
	leader := pr.state.Partitions[c.partition].Leader
	if (c.remove == leader) != (d.remove == leader) {
		return d.remove == leader
	}
	return pr.state.NodeID(c.remove) < pr.state.NodeID(d.remove)
}

// movable says whether a move of a replica can mend a broken rule or a shared zone or region.
func (pr *Proposer) movable(p *state.Partition, cause planner.Cause, at int) bool {
	replicas := pr.state.Replicas(p)
	if replicas[at].Role != planner.Voter {
		return false
	}
	if cause == planner.RuleBroken {
		ks := &pr.state.Keyspaces[p.Keyspace]
		m := pr.objective.Match(ks, replicas)
		return m.Rule[at] == rules.NoRule
	}
	for i, r := range replicas {
		n, m := &pr.state.Nodes[r.Node], &pr.state.Nodes[replicas[at].Node]
		if i != at && n.Region == m.Region {
			return true
		}
	}
	return false
}

// wouldBetter says whether the partition would be better with a replica at a place that is only
// busy.
func (pr *Proposer) wouldBetter(p *state.Partition, at int, f *places) bool {
	x := pr.objective.Inspect(p)
	if f.found == 0 {
		return f.passing
	}
	if pr.state.Nodes[pr.state.Replicas(p)[at].Node].Condition.Is(state.Leaving) {
		return true
	}
	now := candidate{violations: x.Violations, spread: x.Spread}
	return f.hasPlaced && f.placed.betterPlaced(&now) ||
		f.best.refused == planner.NoRoom && f.best.betterPlaced(&now)
}

// explainMove completes the reason of a replacement.
func (pr *Proposer) explainMove(c *change) {
	p := &pr.state.Partitions[c.partition]
	x := pr.objective.Inspect(p)
	switch r := &c.reason; r.Cause {
	case planner.NodeLeaving:
		r.Node = pr.state.NodeID(c.remove)
	case planner.RuleBroken:
		r.Rules = pr.state.Keyspaces[p.Keyspace].Wants.Rules.String()
	case planner.SharedZone, planner.SharedRegion:
		r.Cause = planner.SharedZone
		r.Have, r.Want = x.Spread.Zones, c.found.best.spread.Zones
		if r.Have == r.Want {
			r.Cause = planner.SharedRegion
			r.Have, r.Want = x.Spread.Regions, c.found.best.spread.Regions
		}
	}
}
