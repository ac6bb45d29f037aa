package isolation

import "slices"

// class is the kind of an edge; a set of classes is a mask.
type class uint8

const (
	ww class = 1 << iota
	wr
	rw
	process
	realtime
	// wwRealtime and rwRealtime are dependencies on versions whose order is known from real time
	// only.
	wwRealtime
	rwRealtime
	// hop leads out of a joint, see graph.anti.
	hop
)

const anti = rw | rwRealtime

func (c class) String() string {
	switch c {
	case ww, wwRealtime:
		return "ww"
	case wr:
		return "wr"
	case rw, rwRealtime:
		return "rw"
	case process:
		return "process"
	case realtime:
		return "realtime"
	default:
		return "?"
	}
}

// edge says that one transaction comes before another. before and after are values of the key: what
// was overwritten and by what (ww), what was read (wr, before), what was read and what came after
// it (rw).
type edge struct {
	from, to      int32
	key           int32
	before, after int32
	class         class
}

// graph has a node for every transaction, by its number, and joints after them.
type graph struct {
	nodes  int
	joints int
	edges  []edge
	// first is where the edges of a node begin, once they are sorted.
	first []int32
}

func (g *graph) add(e edge) {
	if e.from != e.to {
		g.edges = append(g.edges, e)
	}
}

// sort puts the edges of a node side by side.
func (g *graph) sort() {
	g.nodes += g.joints
	g.first = make([]int32, g.nodes+1)
	for i := range g.edges {
		g.first[g.edges[i].from+1]++
	}
	for i := range g.nodes {
		g.first[i+1] += g.first[i]
	}
	next := slices.Clone(g.first)
	sorted := make([]edge, len(g.edges))
	for _, e := range g.edges {
		sorted[next[e.from]] = e
		next[e.from]++
	}
	g.edges = sorted
}

// follower is a transaction that wrote a version after the one that was read.
type follower struct {
	transaction int32
	after       int32
	class       class
}

// anti draws the anti-dependencies from all readers of one version to all writers of versions after
// it. Where both are many, they meet in a joint, a node that is no transaction: readers plus
// writers instead of readers times writers edges. A reader that is a writer too must not reach
// itself, and keeps away from the joint; in a good history there is at most one.
func (g *graph) anti(key, before int32, readers []int32, followers []follower) {
	if len(readers) == 0 || len(followers) == 0 {
		return
	}
	var classes class
	for _, f := range followers {
		classes |= f.class
	}
	joined := len(readers)*len(followers) > 4*(len(readers)+len(followers)) &&
		(classes == rw || classes == rwRealtime)
	if !joined {
		for _, r := range readers {
			for _, f := range followers {
				g.add(edge{from: r, to: f.transaction, key: key, before: before, after: f.after,
					class: f.class})
			}
		}
		return
	}
	joint := int32(g.nodes + g.joints)
	g.joints++
	writes := make(map[int32]bool, len(followers))
	for _, f := range followers {
		writes[f.transaction] = true
		g.add(edge{from: joint, to: f.transaction, key: key, before: before, after: f.after,
			class: hop})
	}
	for _, r := range readers {
		if !writes[r] {
			g.add(edge{from: r, to: joint, key: key, before: before, after: none, class: classes})
			continue
		}
		for _, f := range followers {
			g.add(edge{from: r, to: f.transaction, key: key, before: before, after: f.after,
				class: f.class})
		}
	}
}
