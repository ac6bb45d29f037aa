package tree

import (
	"cmp"
	"iter"
	"slices"
)

const (
	// maxEntries bounds the entries of a node, minEntries is the least number in every node but the
	// root.
	maxEntries = 64
	minEntries = maxEntries / 4
)

// Tree is one version of an ordered map. It is immutable, and copied by value. Make the first one
// with New; the zero Tree can only be read from.
type Tree[K any, V comparable] struct {
	compare func(a, b K) int
	// search finds the first of ascending keys that is at or above k. It is called once for each
	// node, not for each comparison, which makes look-ups fast.
	search func(keys []K, k K) (i int, equal bool)
	root   *node[K, V]
	length int
}

// node is a leaf, with a value for each key, or an inner node, with a child for each.
type node[K any, V comparable] struct {
	// owner is the Edit that may write to the node, until Tree is called.
	owner    *owner
	height   int // 0: a leaf
	keys     []K
	values   []V
	children []*node[K, V]
}

// owner has a size, so that each one has an address of its own.
type owner struct{ _ byte }

// New makes an empty tree in the order of compare, which returns a negative number, zero or a
// positive one, as cmp.Compare does.
func New[K any, V comparable](compare func(a, b K) int) Tree[K, V] {
	return Tree[K, V]{compare: compare,
		search: func(keys []K, k K) (int, bool) { return slices.BinarySearchFunc(keys, k, compare) }}
}

// NewOrdered makes an empty tree in the natural order of its keys.
func NewOrdered[K cmp.Ordered, V comparable]() Tree[K, V] {
	return Tree[K, V]{compare: cmp.Compare[K], search: slices.BinarySearch[[]K]}
}

// Len returns the number of entries.
func (t Tree[K, V]) Len() int { return t.length }

// child returns the index of the child of an inner node that contains k, or to which k belongs.
func (t *Tree[K, V]) child(n *node[K, V], k K) int {
	i, equal := t.search(n.keys, k)
	if !equal && i > 0 {
		i--
	}
	return i
}

// Get returns the value of a key.
func (t Tree[K, V]) Get(k K) (v V, found bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	for n.height > 0 {
		n = n.children[t.child(n, k)]
	}
	i, found := t.search(n.keys, k)
	if !found {
		return v, false
	}
	return n.values[i], true
}

// Floor returns the value of the greatest key at or below k.
func (t Tree[K, V]) Floor(k K) (v V, found bool) { return t.last(k, true) }

// Below returns the value of the greatest key below k.
func (t Tree[K, V]) Below(k K) (v V, found bool) { return t.last(k, false) }

func (t Tree[K, V]) last(k K, orEqual bool) (v V, found bool) {
	for n := t.root; n != nil; {
		i, equal := t.search(n.keys, k)
		if equal && orEqual {
			i++
		}
		if i == 0 {
			return v, false // the smallest keys of inner nodes are exact
		}
		if n.height == 0 {
			return n.values[i-1], true
		}
		n = n.children[i-1]
	}
	return v, false
}

// Last returns the value of the greatest key.
func (t Tree[K, V]) Last() (v V, found bool) {
	n := t.root
	if n == nil {
		return v, false
	}
	for n.height > 0 {
		n = n.children[len(n.children)-1]
	}
	return n.values[len(n.values)-1], true
}

// All iterates over all entries in ascending order.
func (t Tree[K, V]) All() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.root.walk(yield)
		}
	}
}

func (n *node[K, V]) walk(yield func(K, V) bool) bool {
	if n.height == 0 {
		for i, k := range n.keys {
			if !yield(k, n.values[i]) {
				return false
			}
		}
		return true
	}
	for _, c := range n.children {
		if !c.walk(yield) {
			return false
		}
	}
	return true
}

// From iterates over the entries with keys at or above k in ascending order.
func (t Tree[K, V]) From(k K) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.walkFrom(t.root, k, yield)
		}
	}
}

func (t *Tree[K, V]) walkFrom(n *node[K, V], k K, yield func(K, V) bool) bool {
	if n.height == 0 {
		i, _ := t.search(n.keys, k)
		for ; i < len(n.keys); i++ {
			if !yield(n.keys[i], n.values[i]) {
				return false
			}
		}
		return true
	}
	i := t.child(n, k)
	if !t.walkFrom(n.children[i], k, yield) {
		return false
	}
	for _, c := range n.children[i+1:] {
		if !c.walk(yield) {
			return false
		}
	}
	return true
}

// Values returns the values in the order of their keys, in a new slice. Its cost is proportional to
// the tree.
func (t Tree[K, V]) Values() []V {
	all := make([]V, 0, t.length)
	for _, v := range t.All() {
		all = append(all, v)
	}
	return all
}
