package isolation

import "slices"

// The graph has few edges for the order of sessions and of real time: transactions that are far
// apart in time are linked through the transactions between them. A short cycle needs the direct
// edge, so such a cycle is not searched in the graph, but made from the times. One real-time edge
// in a cycle is enough. If a cycle has two, from a to b and from c to d, then either a had ended
// before d began, or c before b. That edge closes a shorter cycle.

// link returns the order edge from one transaction to another that a pass may use, if there is one.
func (c *checker) link(p pass, from, to int32) (edge, bool) {
	e := edge{from: from, to: to, key: none, before: none, after: none}
	n := int32(len(c.history))
	if from >= n || to >= n || from == to || c.end(from) == never ||
		!c.history[to].Snapshot.IsZero() {
		return e, false
	}
	sameSession := c.history[from].Session == c.history[to].Session
	began, begins := c.begin(from), c.begin(to)
	switch {
	case p.extra >= processEdges && c.options.Level.sessions() && sameSession &&
		(began < begins || (began == begins && from < to)):
		e.class = process
		return e, true
	case p.extra >= realtimeEdges && c.options.Level.realTime() && c.end(from) < begins:
		e.class = realtime
		return e, true
	default:
		return e, false
	}
}

// closed finds a cycle of up to four dependencies and one order edge. It prefers fewer
// dependencies.
func (c *checker) closed(s *search, v *view, component []int32, p pass) []edge {
	const longest = 4
	if p.extra == plainEdges {
		return nil
	}
	data := *v
	data.mask &^= process | realtime
	for length := int32(1); length <= longest; length++ {
		for _, start := range component {
			if s.exhausted() {
				return nil
			}
			// the order edge leads to start, and is no anti-dependency
			if v.nonadjacent && start&1 == 1 {
				continue
			}
			end := s.reach(&data, start, length, func(place int32) bool {
				_, linked := c.link(p, v.node(place), v.node(start))
				return linked
			})
			if end != none {
				e, _ := c.link(p, v.node(end), v.node(start))
				return append(s.back(start, end), e)
			}
		}
	}
	return nil
}

// shortened replaces as much of a cycle as possible by one order edge.
func (c *checker) shortened(cycle []edge, p pass) []edge {
	const longest = 64
	if p.extra == plainEdges {
		return cycle
	}
	twice := slices.Concat(cycle, cycle)
	for length := 1; length <= min(longest, len(cycle)-2); length++ {
		for i := range cycle {
			kept := twice[i : i+length]
			if e, linked := c.link(p, kept[length-1].to, kept[0].from); linked {
				return append(slices.Clone(kept), e)
			}
		}
	}
	return cycle
}
