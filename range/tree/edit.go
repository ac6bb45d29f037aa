package tree

import (
	"slices"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// Edit makes a new version of a tree. It is for one goroutine.
type Edit[K any, V comparable] struct {
	tree  Tree[K, V]
	owner *owner
}

// Edit begins a new version. The tree itself does not change.
func (t Tree[K, V]) Edit() *Edit[K, V] { return &Edit[K, V]{tree: t, owner: new(owner)} }

// Tree returns the present version. Later changes of the Edit do not affect it.
func (e *Edit[K, V]) Tree() Tree[K, V] {
	e.owner = new(owner)
	if invariants.Enabled && (e.tree.length <= invariants.Small || edited.Due(32)) {
		e.tree.checkInvariants()
	}
	return e.tree
}

// edited counts the versions that were made, for checkInvariants.
var edited invariants.Every

// checkInvariants checks every node of the tree.
func (t *Tree[K, V]) checkInvariants() {
	if t.root == nil {
		invariants.Check(t.length == 0, "a tree of length %d has no node", t.length)
		return
	}
	n := t.checkInvariantsBelow(t.root, true)
	invariants.Check(n == t.length, "a tree of length %d has %d entries", t.length, n)
}

func (t *Tree[K, V]) checkInvariantsBelow(n *node[K, V], root bool) (entries int) {
	invariants.Check(len(n.keys) <= maxEntries && (root && len(n.keys) > 0 ||
		len(n.keys) >= minEntries), "a node of a tree, at height %d, has %d entries", n.height,
		len(n.keys))
	invariants.Check(slices.IsSortedFunc(n.keys, t.compare), "the keys of a tree are not in order: %v",
		n.keys)
	if n.height == 0 {
		invariants.Check(len(n.values) == len(n.keys) && n.children == nil,
			"a leaf of a tree has %d keys, %d values and %d children", len(n.keys), len(n.values),
			len(n.children))
		return len(n.keys)
	}
	invariants.Check(len(n.children) == len(n.keys) && n.values == nil,
		"an inner node of a tree has %d keys, %d values and %d children", len(n.keys),
		len(n.values), len(n.children))
	for i, child := range n.children {
		invariants.Check(child.height == n.height-1 && t.compare(child.keys[0], n.keys[i]) == 0,
			"at height %d of a tree, child %d of the key %v is at height %d and begins with %v",
			n.height, i, n.keys[i], child.height, child.keys[0])
		entries += t.checkInvariantsBelow(child, false)
	}
	return entries
}

// View returns the present version, to be read before the next change, and not to be kept.
func (e *Edit[K, V]) View() Tree[K, V] { return e.tree }

// Set sets the value of a key.
func (e *Edit[K, V]) Set(k K, v V) {
	t := &e.tree
	if t.root == nil {
		t.root = &node[K, V]{owner: e.owner, keys: []K{k}, values: []V{v}}
		t.length = 1
		return
	}
	root, right := e.set(t.root, k, v)
	if right != nil {
		root = &node[K, V]{owner: e.owner, height: root.height + 1,
			keys: []K{root.keys[0], right.keys[0]}, children: []*node[K, V]{root, right}}
	}
	t.root = root
}

// Delete removes a key, and reports whether it was there.
func (e *Edit[K, V]) Delete(k K) bool {
	t := &e.tree
	if _, found := t.Get(k); !found {
		return false
	}
	t.root = e.remove(t.root, k)
	t.length--
	for t.root.height > 0 && len(t.root.children) == 1 {
		t.root = t.root.children[0]
	}
	if len(t.root.keys) == 0 {
		t.root = nil
	}
	return true
}

// own returns a node that the Edit may write to: the given one, or a copy.
func (e *Edit[K, V]) own(n *node[K, V]) *node[K, V] {
	if n.owner == e.owner {
		return n
	}
	return &node[K, V]{owner: e.owner, height: n.height, keys: slices.Clone(n.keys),
		values: slices.Clone(n.values), children: slices.Clone(n.children)}
}

// set returns the node that replaces n, and the node to the right of it if it was split.
func (e *Edit[K, V]) set(n *node[K, V], k K, v V) (left, right *node[K, V]) {
	n = e.own(n)
	if n.height == 0 {
		i, equal := e.tree.search(n.keys, k)
		if equal {
			n.keys[i], n.values[i] = k, v
			return n, nil
		}
		e.tree.length++
		into, i, right := e.room(n, i)
		into.keys, into.values = insert(into.keys, i, k), insert(into.values, i, v)
		return n, right
	}
	i := e.tree.child(n, k)
	child, added := e.set(n.children[i], k, v)
	n.keys[i], n.children[i] = child.keys[0], child
	if added == nil {
		return n, nil
	}
	into, i, right := e.room(n, i+1)
	into.keys, into.children = insert(into.keys, i, added.keys[0]), insert(into.children, i, added)
	return n, right
}

// room makes room for another entry of a node, at index i. If the node is full, its upper part
// moves to a new one, right. It returns the node and the index for the entry. If the entry comes
// last, others are likely to follow, and then most entries stay in the left node.
func (e *Edit[K, V]) room(n *node[K, V], i int) (into *node[K, V], at int, right *node[K, V]) {
	if len(n.keys) < maxEntries {
		return n, i, nil
	}
	middle := maxEntries / 2
	if i == maxEntries {
		middle = maxEntries - minEntries
	}
	right = e.cut(n, middle)
	if i <= middle && i < maxEntries {
		return n, i, right
	}
	return right, i - middle, right
}

// insert inserts one element into a slice of at most maxEntries, whose capacity grows in small
// steps.
func insert[T any](s []T, i int, x T) []T {
	if len(s) == cap(s) {
		s = append(make([]T, 0, min(maxEntries, len(s)+len(s)/4+4)), s...)
	}
	return slices.Insert(s, i, x)
}

// cut moves the entries from an index on to a new node.
func (e *Edit[K, V]) cut(n *node[K, V], at int) *node[K, V] {
	right := &node[K, V]{owner: e.owner, height: n.height, keys: slices.Clone(n.keys[at:])}
	clear(n.keys[at:])
	n.keys = n.keys[:at]
	if n.height == 0 {
		right.values = slices.Clone(n.values[at:])
		clear(n.values[at:])
		n.values = n.values[:at]
	} else {
		right.children = slices.Clone(n.children[at:])
		clear(n.children[at:])
		n.children = n.children[:at]
	}
	return right
}

// remove returns the node that replaces n; k is below n.
func (e *Edit[K, V]) remove(n *node[K, V], k K) *node[K, V] {
	n = e.own(n)
	if n.height == 0 {
		i, _ := e.tree.search(n.keys, k)
		n.keys, n.values = slices.Delete(n.keys, i, i+1), slices.Delete(n.values, i, i+1)
		return n
	}
	i := e.tree.child(n, k)
	child := e.remove(n.children[i], k)
	n.children[i] = child
	if len(child.keys) < minEntries && len(n.children) > 1 {
		e.join(n, max(i-1, 0))
	} else {
		n.keys[i] = child.keys[0]
	}
	return n
}

// join balances children i and i+1 of an inner node, one of which has too few entries.
func (e *Edit[K, V]) join(n *node[K, V], i int) {
	left, right := n.children[i], n.children[i+1]
	all := &node[K, V]{owner: e.owner, height: left.height,
		keys:     slices.Concat(left.keys, right.keys),
		values:   slices.Concat(left.values, right.values),
		children: slices.Concat(left.children, right.children)}
	n.children[i] = all
	if len(all.keys) <= maxEntries {
		n.keys, n.children = slices.Delete(n.keys, i+1, i+2), slices.Delete(n.children, i+1, i+2)
	} else {
		n.children[i+1] = e.cut(all, len(all.keys)/2)
		n.keys[i+1] = n.children[i+1].keys[0]
	}
	n.keys[i] = all.keys[0]
}
