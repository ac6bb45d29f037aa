// Package tree is a persistent B+tree: an ordered map of which each version stays as it is. A
// change makes a new version, which shares with the one before all nodes on which nothing changed.
// So a table of a million entries can be changed, published by one atomic pointer, and compared
// with what a follower saw last, at a cost in proportion to the change.
//
//	old := t                    // a version costs a few words
//	e := t.Edit()
//	e.Set(7, p)                 // copies the path to the entry, once for each Edit
//	t = e.Tree()
//	tree.Diff(old, t, visit)    // skips what both share
//
// Nodes of one Edit are its own until Tree is called; then nothing changes them any more.
//
// INVARIANT: the nodes of a Tree are never written to. So any number of goroutines may read it.
//
// INVARIANT: entry i of an inner node has the smallest key of child i, exactly; all leaves are at
// the same depth; each node but the root has at least minEntries entries.
//
// It imports nothing of the project but range/invariants.
package tree
