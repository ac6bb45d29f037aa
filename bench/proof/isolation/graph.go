package isolation

import "slices"

// class is the kind of an edge. A set of classes is a mask.
type class uint8

const (
	ww class = 1 << iota
	wr
	rw
	process
	realtime
	// wwRealtime and rwRealtime are dependencies on versions whose order is known only from real
	// time.
	wwRealtime
	rwRealtime
	// hop is an edge that leads out of a joint; see graph.anti.
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

// edge says that one transaction comes before another. before and after are values of the key: the
// overwritten value and the new one (ww); the read value (wr, in before); the read value and a
// later one (rw).
type edge struct {
	from, to      int32
	key           int32
	before, after int32
	class         class
}

// graph has a node for every transaction, by the transaction's number. Joints follow.
type graph struct {
	nodes  int
	joints int
	edges  []edge
	// first has the index of each node's first edge, after sort.
	first []int32
}

func (g *graph) add(e edge) {
	if e.from != e.to {
		g.edges = append(g.edges, e)
	}
}

// sort sorts the edges by their first node.
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

// follower is a transaction that wrote a later version than the version that was read.
type follower struct {
	transaction int32
	after       int32
	class       class
}

// anti adds the anti-dependencies from all readers of a version to all writers of later versions.
// If both are many, their edges meet in a joint, which is a node without a transaction. So there
// are readers + writers edges instead of readers * writers. A reader that is also a writer must not
// reach itself, so its edges do not use the joint. A good history has at most one such reader.
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
