package propose

import (
	"cmp"
	"slices"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// maxProbes bounds how many pairs of a partition and a node a step looks at for balance.
const maxProbes = 1 << 19

// moveOverhead is what a move costs beside the bytes that it sends, in bytes.
const moveOverhead = 64 << 20

// balance proposes moves between nodes, level by level, until all nodes are within their bands or a
// limit is reached.
func (pr *Proposer) balance(out []planner.Operator) []planner.Operator {
	for l := planner.LevelRoom; l < planner.Levels; l++ {
		if !pr.barren[l].IsZero() && pr.state.Now().Sub(pr.barren[l]) < pr.state.Settings().Rescan {
			continue
		}
		out = pr.level(l, out)
	}
	return out
}

// level proposes moves at one level.
func (pr *Proposer) level(l planner.Level, out []planner.Operator) []planner.Operator {
	donors := pr.donors(l)
	before, limited := len(out), false
	pr.scans = 0
	v := survey{Proposer: pr, level: l}
	for _, v.donor = range donors {
		for pr.gives(l, v.donor) {
			if pr.atLimit() {
				return out
			}
			v.receivers, v.busy = pr.receivers(l)
			v.scan()
			ops := v.propose()
			limited = limited || v.busy
			if len(ops) == 0 {
				break
			}
			out = append(out, ops...)
		}
	}
	if len(out) == before && !limited && len(donors) > 0 {
		pr.barren[l] = pr.state.Now()
	}
	return out
}

// gives says whether something may be moved away from a node: it is above its band, or above its
// share while another node is below its band.
func (pr *Proposer) gives(l planner.Level, donor uint16) bool {
	return pr.objective.OutsideAt(l, donor, 0) > 0 ||
		pr.objective.Standing(l, donor) > 0 && pr.anyUnder(l)
}

// anyUnder says whether an open node is below its band. A disk has no lower end of its band.
func (pr *Proposer) anyUnder(l planner.Level) bool {
	if l == planner.LevelRoom {
		return false
	}
	for i := range pr.state.Nodes {
		if pr.state.Nodes[i].Condition.Is(state.Open) && pr.objective.OutsideAt(l, uint16(i), 0) < 0 {
			return true
		}
	}
	return false
}

// atLimit says whether the step may not look for any more moves at this level.
func (pr *Proposer) atLimit() bool {
	return pr.state.Working >= pr.state.Settings().MaxOperators ||
		pr.scans >= pr.state.Settings().Scans || pr.probes >= maxProbes
}

// donors are the nodes that something may be moved away from, the farthest above its share first.
// If there are more nodes than a step can scan, they take turns by the time.
func (pr *Proposer) donors(l planner.Level) []uint16 {
	var out []uint16
	under := pr.anyUnder(l)
	for i := range pr.state.Nodes {
		n, condition := uint16(i), pr.state.Nodes[i].Condition
		if !condition.Is(state.Open) && !(l == planner.LevelRoom && condition.Is(state.Live)) {
			continue
		}
		if pr.objective.OutsideAt(l, n, 0) > 0 || under && pr.objective.Standing(l, n) > 0 {
			out = append(out, n)
		}
	}
	pr.sortByStanding(l, out)
	slices.Reverse(out)
	if n := len(out); n > pr.state.Settings().Scans {
		turn := int(pr.state.Now().Unix()/10) * pr.state.Settings().Scans % n
		out = append(out[turn:n:n], out[:turn]...)
	}
	return out
}

// receivers are the open nodes that can receive a snapshot now, the emptiest first. busy: another
// open node cannot.
func (pr *Proposer) receivers(l planner.Level) (out []uint16, busy bool) {
	for i := range pr.state.Nodes {
		if !pr.state.Nodes[i].Condition.Is(state.Open) {
			continue
		}
		if pr.objective.Busy(uint16(i)) != planner.Allowed {
			busy = true
			continue
		}
		out = append(out, uint16(i))
	}
	pr.sortByStanding(l, out)
	return out, busy
}

// sortByStanding sorts nodes by what they have, the emptiest first.
func (pr *Proposer) sortByStanding(l planner.Level, list []uint16) {
	if n := len(pr.state.Nodes); len(pr.standings) < n {
		pr.standings = make([]float64, n)
	}
	for _, n := range list {
		pr.standings[n] = pr.objective.Standing(l, n)
	}
	slices.SortFunc(list, func(a, b uint16) int {
		if c := cmp.Compare(pr.standings[a], pr.standings[b]); c != 0 {
			return c
		}
		return cmp.Compare(pr.state.NodeID(a), pr.state.NodeID(b))
	})
}
