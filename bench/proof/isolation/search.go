package isolation

// search finds short cycles in components by breadth-first search, within a number of steps.
type search struct {
	graph  *graph
	steps  int
	gaveUp bool
	// round is the number of the current search. seen has the number of the last search that
	// reached a place. For such a place, reached is the edge that led to it, origin the place
	// before, and depth the number of steps.
	round   int32
	seen    []int32
	reached []int32
	origin  []int32
	depth   []int32
	queue   []int32
	inside  []int32
	number  int32
}

func newSearch(g *graph, steps int) *search {
	n := 2 * g.nodes
	return &search{
		graph: g, steps: steps, seen: make([]int32, n), reached: make([]int32, n),
		origin: make([]int32, n), depth: make([]int32, n),
		inside: make([]int32, n),
	}
}

// enter confines the search to a component.
func (s *search) enter(component []int32) {
	s.number++
	for _, place := range component {
		s.inside[place] = s.number
	}
}

// reach finds a place that is exactly length steps away from another one, and for which found
// returns true; none if there is no such place.
func (s *search) reach(v *view, from, length int32, found func(int32) bool) int32 {
	s.round++
	s.queue = append(s.queue[:0], from)
	s.depth[from], s.seen[from] = 0, s.round
	for head := 0; head < len(s.queue) && s.depth[s.queue[head]] < length; head++ {
		place := s.queue[head]
		node := v.node(place)
		for i := s.graph.first[node]; i < s.graph.first[node+1]; i++ {
			s.steps--
			next := v.step(place, &s.graph.edges[i])
			if next < 0 || s.inside[next] != s.number || s.seen[next] == s.round {
				continue
			}
			s.seen[next], s.reached[next], s.origin[next], s.depth[next] = s.round, i, place,
				s.depth[place]+1
			if s.depth[next] == length && found(next) {
				return next
			}
			s.queue = append(s.queue, next)
		}
	}
	return none
}

// shortest returns the edges of a short cycle in the entered component: a shortest one if the steps
// suffice. Among the cycles without adjacent anti-dependencies, it prefers one with a single
// anti-dependency. Its first attempt is not bounded, so that it always returns a cycle.
func (s *search) shortest(v *view, component []int32) []edge {
	var best []edge
	if v.nonadjacent {
		// A way back without any anti-dependency gives a cycle with a single one.
		for _, place := range component {
			if place&1 == 1 {
				continue
			}
			for i := s.graph.first[place/2]; i < s.graph.first[place/2+1]; i++ {
				e := s.graph.edges[i]
				to := v.step(place, &e)
				if to < 0 || e.class&anti == 0 || s.inside[to] != s.number {
					continue
				}
				if s.exhausted() {
					break
				}
				if way := s.way(v, to, place, len(best)-1, false, true); way != nil {
					best = append([]edge{e}, way...)
				}
			}
		}
		if best != nil {
			return best
		}
	}
	for _, place := range component {
		if best != nil && (len(best) == 2 || s.exhausted()) {
			break
		}
		if way := s.way(v, place, place, len(best), true, best != nil); way != nil {
			best = way
		}
	}
	return best
}

func (s *search) exhausted() bool {
	if s.steps <= 0 {
		s.gaveUp = true
	}
	return s.gaveUp
}

// way returns a shortest path from one place to another (or back to the same place) inside the
// component, shorter than limit if limit is positive; nil if there is none. If antis is false, the
// path uses no anti-dependency. If bounded is true, the search may stop at the bound of steps.
func (s *search) way(v *view, from, to int32, limit int, antis, bounded bool) []edge {
	s.round++
	s.queue = append(s.queue[:0], from)
	s.depth[from] = 0
	if from != to {
		s.seen[from] = s.round
	}
	for head := 0; head < len(s.queue); head++ {
		place := s.queue[head]
		if limit > 0 && int(s.depth[place])+1 >= limit {
			return nil
		}
		node := v.node(place)
		for i := s.graph.first[node]; i < s.graph.first[node+1]; i++ {
			if s.steps--; bounded && s.steps <= 0 {
				s.gaveUp = true
				return nil
			}
			e := &s.graph.edges[i]
			next := v.step(place, e)
			if next < 0 || s.inside[next] != s.number || s.seen[next] == s.round ||
				(!antis && e.class&anti != 0) {
				continue
			}
			s.seen[next], s.reached[next], s.origin[next], s.depth[next] = s.round, i, place,
				s.depth[place]+1
			if next == to {
				return s.back(from, to)
			}
			s.queue = append(s.queue, next)
		}
	}
	return nil
}

func (s *search) back(from, to int32) []edge {
	var way []edge
	for place := to; ; {
		way = append(way, s.graph.edges[s.reached[place]])
		place = s.origin[place]
		if place == from {
			break
		}
	}
	for i, j := 0, len(way)-1; i < j; i, j = i+1, j-1 {
		way[i], way[j] = way[j], way[i]
	}
	return way
}
