package spans

import (
	"strings"

	"github.com/tidemarkdb/tidemark/range/invariants"
)

// node is a node of a treap: a search tree by span, and a heap by priority.
type node[V any] struct {
	Entry[V]
	left, right *node[V]
	// max is the greatest end in the subtree; an empty end is the greatest.
	max      string
	priority uint64
}

func compareSpans(aStart, aEnd, bStart, bEnd string) int {
	if c := strings.Compare(aStart, bStart); c != 0 {
		return c
	}
	return strings.Compare(aEnd, bEnd)
}

// order compares a span with that of the node.
func (n *node[V]) order(start, end string) int { return compareSpans(start, end, n.start, n.end) }

func (n *node[V]) find(start, end string) *node[V] {
	for n != nil {
		switch c := n.order(start, end); {
		case c == 0:
			return n
		case c < 0:
			n = n.left
		default:
			n = n.right
		}
	}
	return nil
}

// update computes max from the node and its children.
func (n *node[V]) update() {
	n.max = n.end
	for _, child := range []*node[V]{n.left, n.right} {
		if child != nil && n.max != "" && (child.max == "" || child.max > n.max) {
			n.max = child.max
		}
	}
}

// insert adds a node, whose span is not in the tree, and returns the root.
func (n *node[V]) insert(added *node[V]) *node[V] {
	if n == nil {
		return added
	}
	if added.priority > n.priority {
		added.left, added.right = n.split(added.start, added.end)
		added.update()
		return added
	}
	if n.order(added.start, added.end) < 0 {
		n.left = n.left.insert(added)
	} else {
		n.right = n.right.insert(added)
	}
	n.update()
	return n
}

// split divides a tree at a span that is not in it: into the spans before, and the spans after.
func (n *node[V]) split(start, end string) (before, after *node[V]) {
	if n == nil {
		return nil, nil
	}
	if n.order(start, end) < 0 {
		before, n.left = n.left.split(start, end)
		n.update()
		return before, n
	}
	n.right, after = n.right.split(start, end)
	n.update()
	return n, after
}

// remove removes a span, and returns the root.
func (n *node[V]) remove(start, end string) *node[V] {
	if n == nil {
		return nil
	}
	switch c := n.order(start, end); {
	case c == 0:
		return join(n.left, n.right)
	case c < 0:
		n.left = n.left.remove(start, end)
	default:
		n.right = n.right.remove(start, end)
	}
	n.update()
	return n
}

// join joins two trees; all spans of left come before those of right.
func join[V any](left, right *node[V]) *node[V] {
	switch {
	case left == nil:
		return right
	case right == nil:
		return left
	case left.priority > right.priority:
		left.right = join(left.right, right)
		left.update()
		return left
	}
	right.left = join(left, right.left)
	right.update()
	return right
}

func (n *node[V]) visit(key []byte, visit func(*Entry[V])) {
	// A subtree whose greatest end is at or below the key has no span with the key; nor has the
	// right subtree of a node whose start is above the key.
	for n != nil && below(key, n.max) {
		n.left.visit(key, visit)
		if string(key) < n.start {
			return
		}
		if below(key, n.end) {
			visit(&n.Entry)
		}
		n = n.right
	}
}

// changed counts the changes of indexes, for checkInvariants.
var changed invariants.Every

// checkInvariants checks the whole tree of an index; a large tree only at intervals.
func (x *Index[V]) checkInvariants() {
	if x.ranges <= invariants.Small || changed.Due(256) {
		n := x.root.checkInvariants()
		invariants.Check(n == x.ranges, "an index of %d spans has %d", x.ranges, n)
	}
}

// checkInvariants checks a subtree, and returns its number of nodes.
func (n *node[V]) checkInvariants() (nodes int) {
	if n == nil {
		return 0
	}
	nodes = 1
	end := n.end
	for _, child := range []*node[V]{n.left, n.right} {
		if child == nil {
			continue
		}
		nodes += child.checkInvariants()
		if end != "" && (child.max == "" || child.max > end) {
			end = child.max
		}
		invariants.Check(child.priority <= n.priority,
			"the child %q of the span that begins at %q has a higher priority", child.start, n.start)
		invariants.Check((child.order(n.start, n.end) > 0) == (child == n.left),
			"the span that begins at %q, and its child %q, are in the wrong order", n.start,
			child.start)
	}
	invariants.Check(n.max == end,
		"the greatest end below the span that begins at %q is %q, and not %q", n.start, end, n.max)
	return nodes
}
