package planner

import "math"

// dimension is something that is balanced between nodes, in the order of what matters most. Each
// has the sum of what is on a node, and a share that the node should have of the whole.
type dimension uint8

const (
	byLoad dimension = iota
	byBytes
	byCount
	byLeaders

	dimensions
)

func (d dimension) level() Level { return LevelLoad + Level(d) }

// average is the mean of a dimension over the open nodes, by weight.
type average struct {
	// per is the share of a node of weight 1.
	per float64
	// weighted: weights are processors or capacity. Otherwise every node weighs 1.
	weighted bool
	// scale is the mean weight.
	scale float64
}

// measure computes the shares from the sums of the nodes that are open. Others neither have a share
// nor count for it.
func (s *State) measure() {
	for d := range dimensions {
		var sum, weight int64
		nodes, weighted := 0, d == byLoad || d == byBytes
		for i := range s.nodes {
			n := &s.nodes[i]
			if !n.cond.is(open) {
				continue
			}
			nodes++
			sum += n.sum[d]
			w := weightOf(d, n)
			weight += w
			weighted = weighted && w > 0
		}
		if !weighted {
			weight = int64(nodes)
		}
		s.mean[d] = average{weighted: weighted}
		if nodes > 0 {
			s.mean[d].per = float64(sum) / float64(weight)
			s.mean[d].scale = float64(weight) / float64(nodes)
		}
	}
	load := s.mean[byLoad].per * max(1, s.mean[byLoad].scale)
	s.loadTells = load*s.settings.Tolerance > float64(s.settings.LeastLoad)
}

func weightOf(d dimension, n *nodeState) int64 {
	switch d {
	case byLoad:
		return int64(n.info.Processors)
	case byBytes:
		return n.info.DiskCapacity
	default:
		return 1
	}
}

// share is what a node should have of a dimension.
func (s *State) share(d dimension, n uint16) float64 {
	if !s.mean[d].weighted {
		return s.mean[d].per
	}
	return s.mean[d].per * float64(weightOf(d, &s.nodes[n]))
}

// manyLeaders is how far the number of leaders may be from its mean where load decides.
const manyLeaders = 0.5

// band is how far from its share a node may be before something is moved.
func (s *State) band(d dimension, share float64) float64 {
	switch set := &s.settings; d {
	case byLoad:
		return max(float64(set.LeastLoad), share*set.Tolerance)
	case byBytes:
		return max(float64(set.LeastBytes), share*set.Tolerance)
	case byCount:
		return max(set.LeastCount, share*set.CountTolerance)
	default:
		if s.loadTells {
			return max(set.LeastCount, share*max(manyLeaders, set.CountTolerance))
		}
		return max(set.LeastCount, share*set.CountTolerance)
	}
}

// deviation is how far a node is from its share as a part of the share, with more added to it.
func (s *State) deviation(d dimension, n uint16, more int64) float64 {
	share := s.share(d, n)
	if share <= 0 {
		return 0
	}
	return (float64(s.nodes[n].sum[d]+more) - share) / share
}

// outside says how far a node is outside of its band, as a part of its share: positive if above,
// negative if below, 0 within. INVARIANT: nothing is moved for a dimension in which every node is
// within.
func (s *State) outside(d dimension, n uint16, more int64) float64 {
	share := s.share(d, n)
	if share <= 0 {
		return 0
	}
	return beyond(float64(s.nodes[n].sum[d]+more), share, s.band(d, share))
}

func beyond(value, share, band float64) float64 {
	switch {
	case value > share+band:
		return (value - share - band) / share
	case value < share-band:
		return (value - share + band) / share
	}
	return 0
}

// strays is outside for every level from LevelRoom on: for LevelRoom, what is beyond DiskHigh as a
// part of the disk.
func (s *State) strays(l Level, n uint16, more int64) float64 {
	if l == LevelRoom {
		return max(0, s.fullness(n, more)-s.settings.DiskHigh)
	}
	e := s.outside(l.dimension(), n, more)
	if e < 0 && (l == LevelBytes || l == LevelCount) &&
		s.fullness(n, 0) > s.settings.DiskHigh-roomMargin {
		return 0 // it has too little, and can take no more
	}
	return e
}

func (l Level) dimension() dimension { return dimension(l - LevelLoad) }

// roomMargin is how far below DiskHigh a disk is brought that was above.
const roomMargin = 0.02

// penalty is what a node that is not at its share counts in a score: the square of what is beyond
// its band or, if close, beyond half of it. A move that is begun because a node is outside of its
// band is judged closely, so that it ends well within. Squares make a move from a node that is far
// over to one that is a little over worth it, which is all there can be where rules confine a
// keyspace. Nodes count by their weight.
func (s *State) penalty(l Level, n uint16, more int64, close bool) float64 {
	if l == LevelRoom {
		if !s.nodes[n].cond.is(live) {
			return 0
		}
		mark := s.settings.DiskHigh
		if close {
			mark -= roomMargin
		}
		e := max(0, s.fullness(n, more)-mark)
		return e * e
	}
	d := l.dimension()
	share := s.share(d, n)
	if share <= 0 || !s.nodes[n].cond.is(open) {
		return 0
	}
	band := s.band(d, share)
	if close {
		band /= 2
	}
	e := beyond(float64(s.nodes[n].sum[d]+more), share, band)
	if l == LevelLoad && !close {
		e = max(0, e) // too little load keeps nothing else from being done
	}
	if s.mean[d].weighted {
		e *= math.Sqrt(float64(weightOf(d, &s.nodes[n])) / s.mean[d].scale)
	}
	return e * e
}

// relative is an amount as a part of a node's share, or for LevelRoom of its disk.
func (s *State) relative(l Level, n uint16, amount int64) float64 {
	whole := float64(s.nodes[n].info.DiskCapacity)
	if l != LevelRoom {
		whole = s.share(l.dimension(), n)
	}
	if whole <= 0 {
		return 0
	}
	return float64(amount) / whole
}

// standing is what nodes are ordered by: the emptiest first.
func (s *State) standing(l Level, n uint16) float64 {
	if l == LevelRoom {
		return s.fullness(n, 0)
	}
	return s.deviation(l.dimension(), n, 0)
}

// fullness is the part of a node's disk that is used, with more bytes added to it; 0 if its
// capacity is not known.
func (s *State) fullness(n uint16, more int64) float64 {
	node := &s.nodes[n]
	if node.info.DiskCapacity <= 0 {
		return 0
	}
	return float64(node.other+node.sum[byBytes]+more) / float64(node.info.DiskCapacity)
}
