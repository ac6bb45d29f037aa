package planner

import (
	"cmp"
	"slices"
)

// maxProbes bounds how many pairs of a partition and a node a step looks at for balance.
const maxProbes = 1 << 20

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
	found, limited := false, false
	for _, donor := range donors {
		for s.strays(l, donor, 0) > 0 || under && s.standing(l, donor) > 0 {
			if s.atLimit() {
				return out
			}
			op, ok, busy := s.scan(l, donor, receivers)
			limited = limited || busy
			if !ok {
				break
			}
			found = true
			out = append(out, op)
			s.sortReceivers(l, receivers)
			under = s.strays(l, receivers[0], 0) < 0
		}
	}
	if !found && !limited {
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

// scan finds the best move from a node at one level: a transfer where that helps, since it costs
// nothing, and otherwise a replica. Busy tells that limits or pauses stood in the way.
func (s *State) scan(l Level, donor uint16, receivers []uint16) (op Operator, ok, busy bool) {
	s.scans++
	v := survey{State: s, level: l, donor: donor, receivers: receivers}
	if l == LevelLoad || l == LevelLeaders {
		v.transfers()
	}
	if v.best.gain == 0 && l != LevelLeaders {
		v.moves()
	}
	if v.best.gain == 0 {
		return Operator{}, false, v.busy
	}
	c := s.newChange(v.best.partition, Replace)
	if v.best.transfer {
		c.kind, c.lead = Transfer, v.best.to
	} else {
		c.add, c.remove = v.best.to, donor
		if s.partitions[v.best.partition].leads == donor {
			c.lead = v.best.to
		}
	}
	c.rejected = v.alternative()
	c.reason = Reason{Cause: DiskFilling + Cause(l-LevelRoom),
		From: s.shareOf(l, donor), To: s.shareOf(l, v.best.to)}
	op, o := s.complete(c)
	if o != proposed {
		return Operator{}, false, v.busy
	}
	op.Reason.From.After = s.standing(l, donor)
	op.Reason.To.After = s.standing(l, v.best.to)
	return op, true, v.busy
}

func (s *State) shareOf(l Level, n uint16) *Share {
	return &Share{Node: s.id(n), Before: s.standing(l, n)}
}
