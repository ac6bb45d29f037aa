package propose

import (
	"fmt"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
	"github.com/tidemarkdb/tidemark/placement/planner/words"
)

// alternative is the second best place, and what decided against it; nil if there is none.
func (pr *Proposer) alternative(p *state.Partition, f *places) *planner.Alternative {
	if f.found < 2 {
		return nil
	}
	c := &f.second
	out := &planner.Alternative{Node: pr.state.NodeID(c.node), Refused: c.refused}
	if c.refused != planner.Allowed {
		out.Text = pr.objective.RefusalText(p, c.node, c.refused)
		return out
	}
	level, _ := pr.compare(&f.best, c)
	out.Decided = level
	out.Text = pr.levelText(level, &f.best, c)
	return out
}

// levelText says in words what decided against candidate c at a level.
func (pr *Proposer) levelText(level planner.Level, best, c *candidate) string {
	switch level {
	case planner.LevelLegal:
		return fmt.Sprintf("%s would be broken, not %d", words.Plural(c.violations, "placement rule"),
			best.violations)
	case planner.LevelZones:
		return fmt.Sprintf("%s of replicas would share a zone, not %d",
			words.Plural(c.spread.Zones, "pair"), best.spread.Zones)
	case planner.LevelRegions:
		return fmt.Sprintf("%s of replicas would share a region, not %d",
			words.Plural(c.spread.Regions, "pair"), best.spread.Regions)
	case planner.LevelLeader:
		return "it would lead, and leaves that to others: " +
			pr.state.Nodes[c.node].Told.AvoidsLeading()
	case planner.LevelRoom:
		return fmt.Sprintf("its disk would be %d %% beyond the mark, not %d %%", c.room, best.room)
	case planner.LevelLoad, planner.LevelBytes:
		d := level.Dimension()
		return fmt.Sprintf("%s: it would be %d %% above what is tolerated, not %d %%", level,
			c.excess[d], best.excess[d])
	case planner.LevelCount:
		return fmt.Sprintf("it is fuller: %.0f %% of its share, not %.0f %%",
			100*(1+c.fill/float64(planner.ByLeaders)), 100*(1+best.fill/float64(planner.ByLeaders)))
	}
	return "it is as good; the lower id is taken"
}

// RejectedMove returns the best other node for the replica at an index, and what decides against a
// move there; nil if no other node could ever hold the replica.
func (pr *Proposer) RejectedMove(p *state.Partition, at int) *planner.Alternative {
	clear(pr.full)
	found := pr.search(p, at, false, false)
	if found.found == 0 {
		return nil
	}
	best, own := &found.best, pr.state.Replicas(p)[at].Node
	out := &planner.Alternative{Node: pr.state.NodeID(best.node), Refused: best.refused}
	if best.refused != planner.Allowed {
		out.Text = pr.objective.RefusalText(p, best.node, best.refused)
		return out
	}
	x := pr.objective.Inspect(p)
	stay := candidate{node: own, violations: x.Violations, spread: x.Spread}
	switch {
	case stay.betterPlaced(best):
		out.Decided, _ = pr.compare(&stay, best)
		out.Text = pr.levelText(out.Decided, &stay, best)
		return out
	case best.betterPlaced(&stay):
		out.Decided, _ = pr.compare(&stay, best)
		out.Text = "it is the better place, and is waited for or used next"
		return out
	}
	out.Decided = planner.LevelCount
	for l := planner.LevelRoom; l < planner.LevelLeaders; l++ {
		if pr.objective.OutsideAt(l, own, 0) > 0 {
			out.Decided = l
			out.Text = fmt.Sprintf("%s: %s is at %s, %s at %s; others gain more, or it gains too "+
				"little", l, pr.state.NodeID(own), words.Percent(pr.objective.Standing(l, own)), out.Node,
				words.Percent(pr.objective.Standing(l, best.node)))
			return out
		}
	}
	part := func(d planner.Dimension) string {
		return words.Percent(pr.objective.Deviation(d, own, 0))
	}
	out.Text = fmt.Sprintf("as good, and %s is within what is tolerated: load %s of its share, "+
		"bytes %s, replicas %s", pr.state.NodeID(own), part(planner.ByLoad), part(planner.ByBytes),
		part(planner.ByCount))
	return out
}
