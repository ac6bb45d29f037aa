package assign

import (
	"slices"
)

// chooseLeader moves the preferred leader of a set to its front. It is the node that leads the
// fewest partitions of those that the keyspace prefers or, if the keyspace prefers none of the set,
// of all.
func chooseLeader(set []*node) {
	best := 0
	for i := range set {
		if set[i].preferred != set[best].preferred {
			if set[i].preferred {
				best = i
			}
		} else if set[i].leads.less(set[best].leads) {
			best = i
		}
	}
	set[0], set[best] = set[best], set[0]
	set[0].leads.add(1)
}

// less says whether l is less than m: in the keyspace, then in all keyspaces.
func (l load) less(m load) bool {
	if l.keyspace != m.keyspace {
		return l.keyspace < m.keyspace
	}
	return l.all < m.all
}

func (l *load) add(n int) {
	l.keyspace += n
	l.all += n
}

// evenLeaders moves leadership from nodes that lead more to nodes that lead fewer, along chains of
// partitions in which each leader hands over to the next. It goes on as long as a chain makes the
// leaders more even. Every round lowers the sum of the squares, so that it ends.
func (t *topology) evenLeaders(sets [][]*node) {
	led := make(map[*node][]int, len(t.nodes)) // sets by their leader
	for i, set := range sets {
		led[set[0]] = append(led[set[0]], i)
	}
	for {
		// Chains start at the node that leads most; if none starts there, at the next.
		order := slices.Clone(t.nodes)
		slices.SortStableFunc(order, func(a, b *node) int {
			switch {
			case b.leads.less(a.leads):
				return -1
			case a.leads.less(b.leads):
				return 1
			}
			return 0
		})
		if !slices.ContainsFunc(order, func(n *node) bool { return t.shift(n, sets, led) }) {
			return
		}
	}
}

// shift looks, breadth first, for a chain from a node to a node that would lead fewer even with one
// partition more. It moves leadership along the chain, and says whether there was one.
func (t *topology) shift(from *node, sets [][]*node, led map[*node][]int) bool {
	// Without a node that leads few enough there is nothing to gain.
	if !slices.ContainsFunc(t.nodes, func(n *node) bool { return worthwhile(from, n) }) {
		return false
	}
	type step struct {
		by  *node
		set int
	}
	reached := map[*node]step{from: {}}
	queue := []*node{from}
	for len(queue) > 0 {
		n := queue[0]
		queue = queue[1:]
		if n != from && worthwhile(from, n) {
			from.leads.add(-1)
			n.leads.add(1)
			for n != from {
				s := reached[n]
				set := sets[s.set]
				at := slices.Index(set, n)
				set[0], set[at] = set[at], set[0]
				led[s.by] = slices.DeleteFunc(led[s.by], func(i int) bool { return i == s.set })
				led[n] = append(led[n], s.set)
				n = s.by
			}
			return true
		}
		for _, i := range led[n] {
			for _, m := range sets[i][1:] {
				if _, ok := reached[m]; !ok && (m.preferred || !n.preferred) {
					reached[m] = step{by: n, set: i}
					queue = append(queue, m)
				}
			}
		}
	}
	return false
}

// worthwhile says whether the leaders are more even if from leads one partition fewer and to one
// more: in the keyspace, or over all keyspaces and no less even in the keyspace.
func worthwhile(from, to *node) bool {
	switch gain := from.leads.keyspace - to.leads.keyspace; {
	case gain >= 2:
		return true
	case gain == 1:
		// The two swap places in the keyspace.
		return from.leads.all-to.leads.all >= 2
	default:
		return false
	}
}
