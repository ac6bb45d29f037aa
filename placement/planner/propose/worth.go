package propose

import (
	"math"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/objective"
	"github.com/tidemarkdb/tidemark/placement/planner/rules"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// delta is the amount that moves from one node to another, by dimension.
type delta [planner.Dimensions]int64

// at is the amount at a level.
func (d *delta) at(l planner.Level) int64 {
	if l == planner.LevelRoom {
		return d[planner.ByBytes]
	}
	return d[l.Dimension()]
}

// gain is what both ends gain by a move, or 0 if the gain is not enough.
func (v *survey) gain(to uint16, d *delta) float64 {
	amount := d.at(v.level)
	gives := v.objective.Penalty(v.level, v.donor, 0, true) -
		v.objective.Penalty(v.level, v.donor, -amount, true)
	if v.over <= 0 && gives < 0 {
		return 0 // the donor would have too little afterwards
	}
	gain := gives + v.objective.Penalty(v.level, to, 0, true) -
		v.objective.Penalty(v.level, to, amount, true)
	least := v.state.Settings().LeastGain * v.objective.PartOfShare(v.level, v.donor, amount) *
		v.objective.PartOfShare(v.level, to, amount)
	if gain <= rounding || gain < least {
		return 0
	}
	return gain
}

// spares says whether a move takes neither end farther out of its band at a higher level. A donor
// with too little load may still lose bytes: it is given leaderships for that.
func (v *survey) spares(to uint16, d *delta) bool {
	for l := planner.LevelRoom; l < v.level; l++ {
		x := d.at(l)
		if x == 0 {
			continue
		}
		idle := l == planner.LevelLoad && d[planner.ByBytes] > 0
		if !idle && v.farther(l, v.donor, -x) || v.farther(l, to, x) {
			return false
		}
	}
	return true
}

// worthwhile says whether a move does not do more harm to the balance of lower levels than it helps
// at its own. A replica that is moved for load has to be dense: the part of the node's load that it
// has is at least as large as the part of the node's bytes, and at least twice as large if the move
// takes bytes or numbers out of balance. Otherwise many cold partitions would be moved away from
// the node of a hot one, and then others back for their bytes.
func (v *survey) worthwhile(to uint16, d *delta) bool {
	if v.level != planner.LevelLoad {
		return true
	}
	density := v.objective.PartOfShare(planner.LevelLoad, to, d[planner.ByLoad]) /
		v.objective.PartOfShare(planner.LevelBytes, to, d[planner.ByBytes]+1)
	if density < 1 || density >= dense {
		return density >= dense
	}
	for l := planner.LevelBytes; l <= planner.LevelCount; l++ {
		x := d.at(l)
		if v.farther(l, v.donor, -x) || v.farther(l, to, x) {
			return false
		}
	}
	return true
}

// dense is the density from which on a move for load may take bytes out of balance.
const dense = 2

// rounding is a difference that may come of the order of additions alone.
const rounding = 1e-12

// farther says whether a node is farther out of its band with more added to it.
func (v *survey) farther(l planner.Level, n uint16, more int64) bool {
	before, after := v.objective.OutsideAt(l, n, 0), v.objective.OutsideAt(l, n, more)
	return math.Abs(after) > math.Abs(before)+rounding
}

// triggered says whether the donor is above its band or the receiver is below.
func (v *survey) triggered(to uint16) bool {
	return v.objective.OutsideAt(v.level, v.donor, 0) > 0 ||
		v.objective.OutsideAt(v.level, to, 0) < 0
}

// worsens says whether a partition would break more rules or be spread less if the replica on the
// donor moved to a node.
func (v *survey) worsens(p *state.Partition, to uint16) bool {
	replicas := v.state.Replicas(p)
	change := objective.Spread{}
	a, b := &v.state.Nodes[v.donor], &v.state.Nodes[to]
	for _, r := range replicas {
		if r.Node == v.donor {
			continue
		}
		n := &v.state.Nodes[r.Node]
		change.Zones += same(n.Zone, b.Zone) - same(n.Zone, a.Zone)
		change.Regions += same(n.Region, b.Region) - same(n.Region, a.Region)
	}
	if (objective.Spread{}).Less(change) {
		return true
	}
	ks := &v.state.Keyspaces[p.Keyspace]
	if len(ks.Masks) == 0 || ks.Masks[to] == ks.Masks[v.donor] {
		return false
	}
	var after [rules.MaxReplicas]state.Replica
	n := copy(after[:], replicas)
	for i := range after[:n] {
		if after[i].Node == v.donor {
			after[i].Node = to
		}
	}
	return v.objective.Match(ks, after[:n]).Violations > v.objective.Match(ks, replicas).Violations
}

// same is 1 for equal indices, else 0.
func same(a, b uint16) int {
	if a == b {
		return 1
	}
	return 0
}
