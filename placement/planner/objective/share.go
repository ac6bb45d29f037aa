package objective

import (
	"math"

	"github.com/tidemarkdb/tidemark/placement/planner"
	"github.com/tidemarkdb/tidemark/placement/planner/state"
)

// average is the mean of a dimension over the open nodes, by their weights.
type average struct {
	// per is the share of a node of weight 1.
	per float64
	// weighted: the weight of a node is its processors, or the capacity of its disk. Otherwise every
	// node weighs 1.
	weighted bool
	// scale is the mean weight.
	scale float64
}

// Measure computes the shares from the sums of the open nodes. Other nodes have no share and do not
// count. If one open node has no weight, every node weighs 1.
func (o *Objective) Measure() {
	for d := range planner.Dimensions {
		var sum, weight int64
		nodes, weighted := 0, d == planner.ByLoad || d == planner.ByBytes
		for i := range o.state.Nodes {
			n := &o.state.Nodes[i]
			if !n.Condition.Is(state.Open) {
				continue
			}
			nodes++
			sum += n.Sum[d]
			w := weightOf(d, n)
			weight += w
			weighted = weighted && w > 0
		}
		if !weighted {
			weight = int64(nodes)
		}
		o.mean[d] = average{weighted: weighted}
		if nodes > 0 {
			o.mean[d].per = float64(sum) / float64(weight)
			o.mean[d].scale = float64(weight) / float64(nodes)
		}
	}
	load := o.mean[planner.ByLoad].per * max(1, o.mean[planner.ByLoad].scale)
	o.loadTells = load*o.state.Settings().Tolerance > float64(o.state.Settings().LeastLoad)
}

// weightOf is the weight of a node, 0 if it is not known.
func weightOf(d planner.Dimension, n *state.Node) int64 {
	switch d {
	case planner.ByLoad:
		return int64(n.Told.Processors)
	case planner.ByBytes:
		return n.Told.DiskCapacity
	default:
		return 1
	}
}

// Share is the amount of a dimension that a node should have.
func (o *Objective) Share(d planner.Dimension, n uint16) float64 {
	if !o.mean[d].weighted {
		return o.mean[d].per
	}
	return o.mean[d].per * float64(weightOf(d, &o.state.Nodes[n]))
}

// manyLeaders is how far the number of leaders may be from its share, as a part of the share, if
// load decides where leaders are.
const manyLeaders = 0.5

// Band is how far from its share a node may be before something is moved, as an amount.
func (o *Objective) Band(d planner.Dimension, share float64) float64 {
	switch set := o.state.Settings(); d {
	case planner.ByLoad:
		return max(float64(set.LeastLoad), share*set.Tolerance)
	case planner.ByBytes:
		return max(float64(set.LeastBytes), share*set.Tolerance)
	case planner.ByCount:
		return max(set.LeastCount, share*set.CountTolerance)
	default:
		if o.loadTells {
			return max(set.LeastCount, share*max(manyLeaders, set.CountTolerance))
		}
		return max(set.LeastCount, share*set.CountTolerance)
	}
}

// Deviation is how far a node would be from its share with more added to it, as a part of the
// share. It is 0 if the node has no share.
func (o *Objective) Deviation(d planner.Dimension, n uint16, more int64) float64 {
	share := o.Share(d, n)
	if share <= 0 {
		return 0
	}
	return (float64(o.state.Nodes[n].Sum[d]+more) - share) / share
}

// Outside is how far a node would be outside of its band with more added to it, as a part of its
// share: positive above the band, negative below, 0 within.
//
// INVARIANT: nothing is moved for a dimension while every node is within its band.
func (o *Objective) Outside(d planner.Dimension, n uint16, more int64) float64 {
	share := o.Share(d, n)
	if share <= 0 {
		return 0
	}
	return beyond(float64(o.state.Nodes[n].Sum[d]+more), share, o.Band(d, share))
}

// beyond is how far a value is outside of a band around a share, as a part of the share.
func beyond(value, share, band float64) float64 {
	switch {
	case value > share+band:
		return (value - share - band) / share
	case value < share-band:
		return (value - share + band) / share
	}
	return 0
}

// OutsideAt is Outside for the dimension of a level. For LevelRoom it is what the disk has above
// DiskHigh, as a part of the disk.
func (o *Objective) OutsideAt(l planner.Level, n uint16, more int64) float64 {
	if l == planner.LevelRoom {
		return max(0, o.state.Fullness(n, more)-o.state.Settings().DiskHigh)
	}
	e := o.Outside(l.Dimension(), n, more)
	if e < 0 && (l == planner.LevelBytes || l == planner.LevelCount) &&
		o.state.Fullness(n, 0) > o.state.Settings().DiskHigh-roomMargin {
		return 0 // the node has too little, and can take no more
	}
	return e
}

// roomMargin is how far below DiskHigh a disk is brought that was above, as a part of the disk.
const roomMargin = 0.02

// Penalty is what a node outside of its band counts in a score: the square of what is beyond the
// band or, if close, beyond half of the band. A move that begins because a node is outside of its
// band is judged closely, so that it ends well within. Because of the squares a move from a node
// far above its band to a node a little above is a gain; where rules confine a keyspace to few
// nodes there may be no better move. Nodes count by their weight.
func (o *Objective) Penalty(l planner.Level, n uint16, more int64, close bool) float64 {
	if l == planner.LevelRoom {
		if !o.state.Nodes[n].Condition.Is(state.Live) {
			return 0
		}
		mark := o.state.Settings().DiskHigh
		if close {
			mark -= roomMargin
		}
		e := max(0, o.state.Fullness(n, more)-mark)
		return e * e
	}
	d := l.Dimension()
	share := o.Share(d, n)
	if share <= 0 || !o.state.Nodes[n].Condition.Is(state.Open) {
		return 0
	}
	band := o.Band(d, share)
	if close {
		band /= 2
	}
	e := beyond(float64(o.state.Nodes[n].Sum[d]+more), share, band)
	if l == planner.LevelLoad && !close {
		e = max(0, e) // too little load must not keep anything else from being done
	}
	if o.mean[d].weighted {
		e *= math.Sqrt(float64(weightOf(d, &o.state.Nodes[n])) / o.mean[d].scale)
	}
	return e * e
}

// PartOfShare is an amount as a part of the share of a node; for LevelRoom, as a part of its disk.
func (o *Objective) PartOfShare(l planner.Level, n uint16, amount int64) float64 {
	whole := float64(o.state.Nodes[n].Told.DiskCapacity)
	if l != planner.LevelRoom {
		whole = o.Share(l.Dimension(), n)
	}
	if whole <= 0 {
		return 0
	}
	return float64(amount) / whole
}

// Standing is the deviation of a node at a level; for LevelRoom, the part of its disk that is used.
// Nodes are ordered by it, the emptiest first.
func (o *Objective) Standing(l planner.Level, n uint16) float64 {
	if l == planner.LevelRoom {
		return o.state.Fullness(n, 0)
	}
	return o.Deviation(l.Dimension(), n, 0)
}
