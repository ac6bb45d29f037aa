package isolation

// view is the part of a graph in which one class of cycles is searched.
type view struct {
	graph *graph
	mask  class
	// nonadjacent forbids two anti-dependencies in a row. Then each node n has two places: 2n+1 if
	// the last edge was an anti-dependency, 2n otherwise. The closed walks in this doubled graph
	// are exactly the cycles that snapshot isolation forbids.
	nonadjacent bool
	// label, if not nil, confines the view: nodes with label 0 are outside, and no edge leads from
	// one label to another.
	label []int32
}

func (v *view) places() int {
	if v.nonadjacent {
		return 2 * v.graph.nodes
	}
	return v.graph.nodes
}

func (v *view) node(place int32) int32 {
	if v.nonadjacent {
		return place / 2
	}
	return place
}

// step returns the place to which an edge leads from a place, or -1.
func (v *view) step(place int32, e *edge) int32 {
	if e.class&v.mask == 0 || (v.label != nil && v.label[e.from] != v.label[e.to]) {
		return -1
	}
	if !v.nonadjacent {
		return e.to
	}
	reached := place & 1
	switch {
	case e.class == hop: // keeps the kind of the edge that led to the joint
		return 2*e.to + reached
	case e.class&anti == 0:
		return 2 * e.to
	case reached == 1:
		return -1
	default:
		return 2*e.to + 1
	}
}

// components returns the strongly connected components with more than one place (Tarjan's
// algorithm, without recursion).
func (v *view) components() [][]int32 {
	n := v.places()
	var (
		order     = make([]int32, n) // 0: not visited
		low       = make([]int32, n)
		next      = make([]int32, n) // the next edge to follow
		onStack   = make([]bool, n)
		stack     []int32
		path      []int32
		visited   int32
		found     [][]int32
		edges     = v.graph.edges
		firstEdge = v.graph.first
	)
	for root := range int32(n) {
		if order[root] != 0 || (v.label != nil && v.label[v.node(root)] == 0) {
			continue
		}
		path = append(path[:0], root)
		for len(path) > 0 {
			place := path[len(path)-1]
			node := v.node(place)
			if order[place] == 0 {
				visited++
				order[place], low[place] = visited, visited
				next[place] = firstEdge[node]
				stack, onStack[place] = append(stack, place), true
			}
			descended := false
			for next[place] < firstEdge[node+1] {
				to := v.step(place, &edges[next[place]])
				next[place]++
				if to < 0 {
					continue
				}
				if order[to] == 0 {
					path, descended = append(path, to), true
					break
				}
				if onStack[to] {
					low[place] = min(low[place], order[to])
				}
			}
			if descended {
				continue
			}
			path = path[:len(path)-1]
			if len(path) > 0 {
				parent := path[len(path)-1]
				low[parent] = min(low[parent], low[place])
			}
			if low[place] != order[place] {
				continue
			}
			start := len(stack) - 1
			for stack[start] != place {
				start--
			}
			for _, member := range stack[start:] {
				onStack[member] = false
			}
			if len(stack)-start > 1 {
				found = append(found, append([]int32(nil), stack[start:]...))
			}
			stack = stack[:start]
		}
	}
	return found
}
