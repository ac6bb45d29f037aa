package planner

import (
	"cmp"
	"slices"
)

// maxProbes bounds how many pairs of a partition and a node a step looks at for balance.
const maxProbes = 1 << 19

// moveOverhead is what a move costs beside the bytes it sends, in bytes: a change of replicas is not
// for nothing.
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
	donors, under := s.donors(l)
	if len(donors) == 0 {
		return out
	}
	receivers := s.receivers(l)
	before, limited := len(out), false
	for _, donor := range donors {
		for s.strays(l, donor, 0) > 0 || under && s.standing(l, donor) > 0 {
			if s.atLimit() {
				return out
			}
			v := survey{State: s, level: l, donor: donor, receivers: receivers}
			v.scan()
			ops := v.propose()
			limited = limited || v.busy
			if len(ops) == 0 {
				break
			}
			out = append(out, ops...)
			s.sortReceivers(l, receivers)
			under = s.strays(l, receivers[0], 0) < 0
		}
	}
	if len(out) == before && !limited {
		s.barren[l] = s.now
	}
	return out
}

func (s *State) atLimit() bool {
	return len(s.flights) >= s.settings.MaxOperators || s.scans >= s.settings.Scans ||
		s.probes >= maxProbes
}

// donors are the nodes that are above their bands, the farthest first, and, if some node is below
// its band, those above their shares. If there are more than a step can scan, they take turns with
// the time.
func (s *State) donors(l Level) (donors []uint16, under bool) {
	over := 0
	for i := range s.nodes {
		n := uint16(i)
		if !s.nodes[i].cond.is(open) && !(l == LevelRoom && s.nodes[i].cond.is(live)) {
			continue
		}
		switch e := s.strays(l, n, 0); {
		case e > 0:
			over++
			donors = append(donors, n)
		case e < 0:
			under = true
		case l != LevelRoom && s.standing(l, n) > 0:
			donors = append(donors, n)
		}
	}
	standing := make([]float64, len(s.nodes))
	for _, n := range donors {
		standing[n] = s.standing(l, n)
	}
	slices.SortFunc(donors, func(a, b uint16) int {
		if c := cmp.Compare(standing[b], standing[a]); c != 0 {
			return c
		}
		return compareIDs(s.id(a), s.id(b))
	})
	if !under {
		// Weights may differ, so that what is above its band need not stand highest.
		donors = slices.DeleteFunc(donors, func(n uint16) bool { return s.strays(l, n, 0) <= 0 })
	}
	if n := len(donors); n > s.settings.Scans {
		turn := int(s.now.Unix()/10) * s.settings.Scans % n
		donors = append(donors[turn:n:n], donors[:turn]...)
	}
	return donors, under
}

// receivers are the open nodes, the emptiest first.
func (s *State) receivers(l Level) []uint16 {
	var out []uint16
	for i := range s.nodes {
		if s.nodes[i].cond.is(open) {
			out = append(out, uint16(i))
		}
	}
	s.sortReceivers(l, out)
	return out
}

func (s *State) sortReceivers(l Level, list []uint16) {
	standing := make([]float64, len(s.nodes))
	for _, n := range list {
		standing[n] = s.standing(l, n)
	}
	slices.SortFunc(list, func(a, b uint16) int {
		if c := cmp.Compare(standing[a], standing[b]); c != 0 {
			return c
		}
		return compareIDs(s.id(a), s.id(b))
	})
}
