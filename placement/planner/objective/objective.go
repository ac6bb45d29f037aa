package objective

import (
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// Objective judges a State. It owns the shares that nodes should have, as of the last Measure;
// everything else follows from the State when it is asked.
type Objective struct {
	state *state.State
	// mean holds, for each dimension, the mean of the open nodes.
	mean [planner.Dimensions]average
	// loadTells: there is so much load that leaders are balanced by it. A difference from the share
	// as large as Settings.Tolerance is then worth a move.
	loadTells bool
}

// New returns an Objective over a State.
func New(s *state.State) *Objective { return &Objective{state: s} }

// Score is the value of the objective for a partition by its descriptor, and for nodes by their
// sums. focus is the level of balance that the operator at issue is for, planner.Levels if it is
// for none.
func (o *Objective) Score(p *state.Partition, focus planner.Level, nodes []uint16) planner.Score {
	return o.ScoreAs(p, o.state.Replicas(p), o.PresentLeaderCost(p, p.Leader), focus, nodes)
}

// ScoreAs is the score of a partition if it had other replicas and a leader of that cost.
func (o *Objective) ScoreAs(
	p *state.Partition, replicas []state.Replica, leader int, focus planner.Level, nodes []uint16,
) planner.Score {
	var sc planner.Score
	x := o.inspectAs(p, replicas)
	sc[planner.LevelLegal] = float64(x.Violations + x.Leaving)
	sc[planner.LevelQuorum] = float64(x.unsafe)
	sc[planner.LevelZones] = float64(max(0,
		x.Spread.Zones-leastPairs(x.Good, o.state.OpenZones)))
	sc[planner.LevelRegions] = float64(max(0,
		x.Spread.Regions-leastPairs(x.Good, o.state.OpenRegions)))
	sc[planner.LevelLeader] = float64(leader)
	o.scoreNodes(&sc, focus, nodes)
	return sc
}

// scoreNodes adds what the nodes have beyond their bands; at the level of the focus, beyond half of
// their bands. So a move for a lower level can use all that is tolerated at a higher level, and can
// never go beyond.
func (o *Objective) scoreNodes(sc *planner.Score, focus planner.Level, nodes []uint16) {
	for i, n := range nodes {
		if n == state.NoNode || slices.Contains(nodes[:i], n) {
			continue
		}
		for l := planner.LevelRoom; l < planner.Levels; l++ {
			sc[l] += o.Penalty(l, n, 0, l == focus)
		}
	}
}
