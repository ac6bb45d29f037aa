package isolation

import "slices"

// pass is one class of cycles: cycles of the dependencies in base and the order edges in extra.
type pass struct {
	extra, base int
}

// passes is a set of passes.
type passes uint16

func (p pass) bit() passes { return 1 << (p.extra*4 + p.base) }

// below returns this pass and the passes that use only dependencies of this pass.
func (p pass) below() passes {
	var set passes
	for extra := range p.extra + 1 {
		for base := range p.base + 1 {
			set |= pass{extra: extra, base: base}.bit()
		}
	}
	return set
}

const (
	plainEdges = iota
	processEdges
	realtimeEdges
)

const (
	writesOnly = iota
	information
	nonadjacent
	everything
)

func (p pass) mask() class {
	mask := hop | ww
	if p.base >= information {
		mask |= wr
	}
	if p.base >= nonadjacent {
		mask |= rw
	}
	if p.extra >= processEdges {
		mask |= process
	}
	if p.extra >= realtimeEdges {
		mask |= realtime | wwRealtime
		if p.base >= nonadjacent {
			mask |= rwRealtime
		}
	}
	return mask
}

func (p pass) name(antiDependencies int) Anomaly {
	var name Anomaly
	switch {
	case p.base == writesOnly:
		name = G0
	case p.base == information:
		name = G1c
	case p.base == everything:
		name = G2Item
	case antiDependencies == 1:
		name = GSingle
	default:
		name = GNonadjacent
	}
	switch p.extra {
	case processEdges:
		return name.Process()
	case realtimeEdges:
		return name.RealTime()
	default:
		return name
	}
}

// cycles finds cycles of dependencies, which no serial order explains. First a search over all
// dependencies decides, in linear time, whether there is a cycle. If there is one, the classes of
// cycles are searched, from the most elementary class on. A component in which a cycle of a lower
// class was found is not reported again: the new cycle would be the same one, or would depend on
// the first one. So any cycle of a component that is left belongs to the class of the pass, and to
// no lower class.
func (c *checker) cycles() {
	last := plainEdges
	switch {
	case c.options.Level.realTime() || c.options.KeyRealTime:
		last = realtimeEdges
	case c.options.Level.sessions():
		last = processEdges
	}
	all := view{graph: &c.graph, mask: pass{extra: last, base: everything}.mask()}
	suspects := all.components()
	if len(suspects) == 0 {
		return
	}
	label := make([]int32, c.graph.nodes)
	for i, component := range suspects {
		for _, node := range component {
			label[node] = int32(i + 1)
		}
	}
	search := newSearch(&c.graph, c.options.Steps)
	reported := make([]passes, c.graph.nodes) // the passes that found a cycle which begins at a node
	for extra := plainEdges; extra <= last; extra++ {
		for base := writesOnly; base <= everything; base++ {
			p := pass{extra: extra, base: base}
			v := view{graph: &c.graph, mask: p.mask(), nonadjacent: base == nonadjacent,
				label: label}
			for _, component := range v.components() {
				below := p.below()
				if slices.ContainsFunc(component,
					func(place int32) bool { return reported[v.node(place)]&below != 0 }) {
					continue
				}
				search.enter(component)
				cycle := c.closed(search, &v, component, p)
				if cycle == nil {
					cycle = c.shortened(search.shortest(&v, component), p)
				}
				reported[cycle[0].from] |= p.bit()
				c.addCycle(p, cycle, component, &v)
			}
		}
	}
	c.report.GaveUp = search.gaveUp
}

// addCycle reports a cycle. The report starts with the transaction that began first.
func (c *checker) addCycle(p pass, cycle []edge, component []int32, v *view) {
	cycle = withoutJoints(cycle, int32(len(c.history)))
	first := 0
	count := 0
	for i, e := range cycle {
		if a, b := c.begin(e.from), c.begin(cycle[first].from); a < b ||
			(a == b && e.from < cycle[first].from) {
			first = i
		}
		if e.class&anti != 0 {
			count++
		}
	}
	cycle = slices.Concat(cycle[first:], cycle[:first])
	size := make(map[int32]bool)
	for _, place := range component {
		if n := v.node(place); int(n) < len(c.history) {
			size[n] = true
		}
	}
	f := Finding{Anomaly: p.name(count), Component: len(size)}
	for _, e := range cycle {
		f.Cycle = append(f.Cycle, Dependency{From: int(e.from), To: int(e.to),
			Kind: e.class.String(), Why: c.why(e)})
	}
	c.add(f, func() string { return c.explain(f) })
}

// withoutJoints replaces each two edges that meet in a joint by one edge.
func withoutJoints(cycle []edge, transactions int32) []edge {
	if cycle[0].from >= transactions {
		cycle = slices.Concat(cycle[len(cycle)-1:], cycle[:len(cycle)-1])
	}
	var direct []edge
	for _, e := range cycle {
		if e.class == hop {
			last := &direct[len(direct)-1]
			last.to, last.after = e.to, e.after
			continue
		}
		direct = append(direct, e)
	}
	return direct
}
