package planner

import (
	"cmp"
	"slices"
)

// maxProbes bounds how many pairs of a partition and a node a step looks at for balance.
const maxProbes = 1 << 19

// moveOverhead is what a move costs beside the bytes it sends, in bytes: a change of replicas is
// not for nothing.
const moveOverhead = 64 << 20

// balance proposes moves between open nodes, level by level, until all are within their bands or
// limits are reached.
func (s *State) balance(out []Operator) []Operator {
	for l := LevelRoom; l < levels; l++ {
		if !s.barren[l].IsZero() && s.now.Sub(s.barren[l]) < s.settings.Rescan {
			continue
		}
		out = s.level(l, out)
	}
	return out
}

// level brings the nodes nearer to their shares at one level.
func (s *State) level(l Level, out []Operator) []Operator {
	donors := s.donors(l)
	before, limited := len(out), false
	s.scans = 0
	v := survey{State: s, level: l}
	for _, v.donor = range donors {
		for s.gives(l, v.donor) {
			if s.atLimit() {
				return out
			}
			v.receivers, v.busy = s.receivers(l)
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
		s.barren[l] = s.now
	}
	return out
}

// gives says whether a node is one to move something from: it is above its band, or above its share
// while another is below its band.
func (s *State) gives(l Level, donor uint16) bool {
	return s.strays(l, donor, 0) > 0 || s.standing(l, donor) > 0 && s.anyUnder(l)
}

func (s *State) anyUnder(l Level) bool {
	if l == LevelRoom {
		return false
	}
	for i := range s.nodes {
		if s.nodes[i].cond.is(open) && s.strays(l, uint16(i), 0) < 0 {
			return true
		}
	}
	return false
}

func (s *State) atLimit() bool {
	return s.working >= s.settings.MaxOperators || s.scans >= s.settings.Scans ||
		s.probes >= maxProbes
}

// donors are the nodes that give, the farthest above their share first. If there are more than a
// step can scan, they take turns with the time.
func (s *State) donors(l Level) []uint16 {
	var out []uint16
	under := s.anyUnder(l)
	for i := range s.nodes {
		n := uint16(i)
		if !s.nodes[i].cond.is(open) && !(l == LevelRoom && s.nodes[i].cond.is(live)) {
			continue
		}
		if s.strays(l, n, 0) > 0 || under && s.standing(l, n) > 0 {
			out = append(out, n)
		}
	}
	s.sortByStanding(l, out)
	slices.Reverse(out)
	if n := len(out); n > s.settings.Scans {
		turn := int(s.now.Unix()/10) * s.settings.Scans % n
		out = append(out[turn:n:n], out[:turn]...)
	}
	return out
}

// receivers are the open nodes that can receive now, the emptiest first, and whether there are
// others that cannot.
func (s *State) receivers(l Level) (out []uint16, busy bool) {
	for i := range s.nodes {
		if !s.nodes[i].cond.is(open) {
			continue
		}
		if s.busy(uint16(i)) != Allowed {
			busy = true
			continue
		}
		out = append(out, uint16(i))
	}
	s.sortByStanding(l, out)
	return out, busy
}

func (s *State) sortByStanding(l Level, list []uint16) {
	s.standings = resized(s.standings, len(s.nodes))
	for _, n := range list {
		s.standings[n] = s.standing(l, n)
	}
	slices.SortFunc(list, func(a, b uint16) int {
		if c := cmp.Compare(s.standings[a], s.standings[b]); c != 0 {
			return c
		}
		return cmp.Compare(s.id(a), s.id(b))
	})
}
