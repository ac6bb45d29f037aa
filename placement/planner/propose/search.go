package propose

import (
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// surroundings are all that a search depends on if the keyspace has no rules: the zones of the
// voters that stay. In the course of a step nodes only become busier. So if a search found no free
// place, the next search with the same surroundings in the same step would find none either.
type surroundings struct {
	keyspace uint16
	repair   bool
	count    uint8
	zones    [rules.MaxFactor]uint16
}

// surroundingsOf returns the surroundings of the voters that stay, and whether a search depends on
// nothing else. Zones are sorted, so that the order of replicas does not matter.
func (pr *Proposer) surroundingsOf(
	p *state.Partition, rest []state.Replica, repair bool,
) (surroundings, bool) {
	out := surroundings{keyspace: p.Keyspace, repair: repair, count: uint8(len(rest))}
	if len(pr.state.Keyspaces[p.Keyspace].Masks) > 0 || len(rest) > rules.MaxFactor {
		return out, false
	}
	for i, r := range rest {
		at := i
		for ; at > 0 && out.zones[at-1] > pr.state.Nodes[r.Node].Zone; at-- {
			out.zones[at] = out.zones[at-1]
		}
		out.zones[at] = pr.state.Nodes[r.Node].Zone
	}
	return out, true
}

// candidate is a node that a replica could be given to, and what the objective says of it.
type candidate struct {
	node       uint16
	refused    planner.Refusal
	violations int
	spread     objective.Spread
	// avoids: the node would lead, as no voter that stays can or the caller wants it to, and leaves
	// leadership to others.
	avoids bool
	// room is by how many percent of its size the disk would be above DiskHigh.
	room int
	// excess is by how many percent of its share the node would be above its band, by dimension.
	excess [planner.ByLeaders]int
	// fill is the sum of the deviations in all dimensions. Among nodes within their bands the
	// emptiest is best.
	fill float64
}

// compare compares two candidates: negative if a is better. It returns the level that decided.
func (pr *Proposer) compare(a, b *candidate) (planner.Level, int) {
	switch {
	case a.refused != b.refused:
		return planner.LevelLegal, int(a.refused) - int(b.refused)
	case a.violations != b.violations:
		return planner.LevelLegal, a.violations - b.violations
	case a.spread.Zones != b.spread.Zones:
		return planner.LevelZones, a.spread.Zones - b.spread.Zones
	case a.spread.Regions != b.spread.Regions:
		return planner.LevelRegions, a.spread.Regions - b.spread.Regions
	case a.avoids != b.avoids:
		return planner.LevelLeader, orderOf(a.avoids)
	case a.room != b.room:
		return planner.LevelRoom, a.room - b.room
	}
	for d := range planner.ByLeaders {
		if c := a.excess[d] - b.excess[d]; c != 0 {
			return d.Level(), c
		}
	}
	switch {
	case a.fill < b.fill:
		return planner.LevelCount, -1
	case a.fill > b.fill:
		return planner.LevelCount, 1
	}
	return planner.Levels, cmp.Compare(pr.state.NodeID(a.node), pr.state.NodeID(b.node))
}

// orderOf is the order of two that differ in one condition: positive if the first is worse.
func orderOf(worse bool) int {
	if worse {
		return 1
	}
	return -1
}

// betterPlaced says whether c is the better place, limits aside, by rules and spread only.
func (c *candidate) betterPlaced(d *candidate) bool {
	if c.violations != d.violations {
		return c.violations < d.violations
	}
	return c.spread.Less(d.spread)
}

// places is the outcome of a search for a node for a replica.
type places struct {
	// best and second are the best candidates, found is how many of the two there are.
	best, second candidate
	found        int
	// placed is the best place by rules and spread among the nodes that are allowed or only busy. It
	// is set if hasPlaced is.
	placed    candidate
	hasPlaced bool
	// passing: some node is refused for a reason that passes.
	passing bool
}

// outcome is the outcome of an attempt whose search found no place that can be used now.
func (f *places) outcome() Outcome {
	if f.passing || f.found > 0 && f.best.refused == planner.Allowed {
		return Waits
	}
	return Stuck
}

// search looks for the best node for a replica of a partition that is to take the place of the
// replica at the index without; if that is negative, the new replica takes no place. leads:
// the new replica is to lead as well.
func (pr *Proposer) search(p *state.Partition, without int, repair, leads bool) places {
	var rest [rules.MaxReplicas + 1]state.Replica
	n := 0
	for i, r := range pr.state.Replicas(p) {
		if i != without && r.Role != planner.Learner && r.Role != planner.Outgoing &&
			!pr.objective.MustReplace(r) {
			rest[n] = r
			n++
		}
	}
	out := places{}
	around, plain := pr.surroundingsOf(p, rest[:n], repair)
	if plain && pr.full[around] {
		out.passing = true
		return out
	}
	pr.searches++
	base := pr.objective.SpreadOf(rest[:n])
	leads = leads || !slices.ContainsFunc(rest[:n], pr.objective.CanLead)
	for i := range pr.state.Nodes {
		if !pr.state.Nodes[i].Known {
			continue
		}
		c := pr.assess(p, uint16(i), rest[:n+1], n, base, repair)
		if c.refused == planner.HoldsReplica {
			continue
		}
		if c.refused.Passes() && c.refused != planner.Allowed {
			out.passing = true
		}
		if c.refused < planner.NoRoom && (!out.hasPlaced || c.betterPlaced(&out.placed)) {
			out.placed, out.hasPlaced = c, true
		}
		if out.found == 2 && c.worseThan(&out.second) {
			continue
		}
		c.avoids = leads && pr.objective.AvoidsLeading(c.node)
		pr.fill(p, &c)
		out.keep(pr, &c)
	}
	if plain && !out.usable() && out.hasPlaced && out.placed.refused != planner.Allowed {
		pr.full[around] = true
	}
	return out
}

// assess judges a node beside the n replicas that stay, whose spread is base. others has room for
// one replica more.
func (pr *Proposer) assess(
	p *state.Partition, node uint16, others []state.Replica, n int, base objective.Spread,
	repair bool,
) candidate {
	c := candidate{node: node, refused: pr.objective.Refuse(p, node, repair), spread: base}
	if !c.refused.Passes() {
		return c
	}
	at := &pr.state.Nodes[node]
	for _, r := range others[:n] {
		other := &pr.state.Nodes[r.Node]
		if other.Zone == at.Zone {
			c.spread.Zones++
		}
		if other.Region == at.Region {
			c.spread.Regions++
		}
	}
	if ks := &pr.state.Keyspaces[p.Keyspace]; len(ks.Masks) > 0 {
		others[n] = state.Replica{Node: node}
		c.violations = pr.objective.Match(ks, others).Violations
	}
	return c
}

// worseThan says whether a candidate is worse already by what assess has found out.
func (c *candidate) worseThan(d *candidate) bool {
	return c.refused > d.refused || c.refused == d.refused && d.betterPlaced(c)
}

// fill adds the figures of the node itself.
func (pr *Proposer) fill(p *state.Partition, c *candidate) {
	if !c.refused.Passes() {
		return
	}
	node := c.node
	c.room = percentAbove(pr.state.Fullness(node, p.Bytes) - pr.state.Settings().DiskHigh)
	for d := range planner.ByLeaders {
		more := amount(p, d)
		c.excess[d] = percentAbove(pr.objective.Outside(d, node, more))
		c.fill += pr.objective.Deviation(d, node, more)
	}
}

// percentAbove is a part above 0 in whole percent, so that a slight difference decides nothing.
func percentAbove(x float64) int { return int(100 * max(0, x)) }

// amount is what a replica that follows adds to its node in a dimension.
func amount(p *state.Partition, d planner.Dimension) int64 {
	switch d {
	case planner.ByLoad:
		return int64(p.FollowerLoad)
	case planner.ByBytes:
		return p.Bytes
	case planner.ByCount:
		return 1
	default:
		return 0
	}
}

// keep keeps a candidate if it is among the best two so far.
func (f *places) keep(pr *Proposer, c *candidate) {
	if f.found > 0 {
		if _, order := pr.compare(c, &f.best); order > 0 {
			if f.found == 1 {
				f.second, f.found = *c, 2
			} else if _, order := pr.compare(c, &f.second); order < 0 {
				f.second = *c
			}
			return
		}
		f.second, f.found = f.best, 1
	}
	f.best = *c
	f.found++
}

// usable says whether the best candidate can be given the replica now. It cannot if a better place
// is only busy: a replica in the wrong zone would have to be moved a second time.
func (f *places) usable() bool {
	return f.found > 0 && f.best.refused == planner.Allowed && !f.placed.betterPlaced(&f.best)
}
