package tree

// Change is the change of one key from one version to another. Had and Has report whether the key
// is in the former and in the latter.
type Change[K any, V comparable] struct {
	Key      K
	Old, New V
	Had, Has bool
}

// Diff calls visit for each key whose value differs between two versions of a tree, in ascending
// order, until visit returns false. Nodes that both versions share are skipped, so if one version
// was made from the other by edits, the cost is proportional to what they changed.
func Diff[K any, V comparable](from, to Tree[K, V], visit func(Change[K, V]) bool) {
	if from.root == to.root {
		return
	}
	compare := to.compare
	if compare == nil {
		compare = from.compare
	}
	a, b := newCursor(from.root), newCursor(to.root)
	for !a.over() || !b.over() {
		below, above := a.subtree(), b.subtree()
		switch {
		case below != nil && below == above:
			a.next()
			b.next()
			continue
		case below != nil && above != nil && below.height == above.height:
			a.descend()
			b.descend()
			continue
		case below != nil && (above == nil || below.height > above.height):
			a.descend()
			continue
		case above != nil:
			b.descend()
			continue
		}
		var c Change[K, V]
		order := 0
		switch {
		case a.over():
			order = 1
		case b.over():
			order = -1
		default:
			order = compare(a.key(), b.key())
		}
		if order <= 0 {
			c.Key, c.Old, c.Had = a.key(), a.value(), true
			a.next()
		}
		if order >= 0 {
			c.Key, c.New, c.Has = b.key(), b.value(), true
			b.next()
		}
		if c.Had && c.Has && c.Old == c.New {
			continue
		}
		if !visit(c) {
			return
		}
	}
}

// cursor walks over a tree, and can at each step enter a subtree or skip it.
type cursor[K any, V comparable] struct{ path []step[K, V] }

type step[K any, V comparable] struct {
	node *node[K, V]
	at   int
}

func newCursor[K any, V comparable](root *node[K, V]) *cursor[K, V] {
	c := &cursor[K, V]{}
	if root != nil {
		c.path = append(c.path, step[K, V]{node: root})
	}
	return c
}

func (c *cursor[K, V]) over() bool { return len(c.path) == 0 }

func (c *cursor[K, V]) top() *step[K, V] { return &c.path[len(c.path)-1] }

// subtree returns the subtree before which the cursor stands; nil if it stands before an entry, or
// at the end.
func (c *cursor[K, V]) subtree() *node[K, V] {
	if c.over() || c.top().node.height == 0 {
		return nil
	}
	return c.top().node.children[c.top().at]
}

func (c *cursor[K, V]) descend() { c.path = append(c.path, step[K, V]{node: c.subtree()}) }

func (c *cursor[K, V]) key() K { return c.top().node.keys[c.top().at] }

func (c *cursor[K, V]) value() V { return c.top().node.values[c.top().at] }

// next skips the subtree, or the entry.
func (c *cursor[K, V]) next() {
	for !c.over() {
		top := c.top()
		if top.at++; top.at < len(top.node.keys) {
			return
		}
		c.path = c.path[:len(c.path)-1]
	}
}
