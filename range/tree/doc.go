// Package tree is a persistent B+tree: an ordered map whose versions are immutable. A change makes
// a new version, which shares all unchanged nodes with the one before. So a table of a million
// entries can be changed, published by one atomic pointer, and compared with the version that a
// follower saw last, at a cost proportional to the change.
//
//	old := t                    // a version costs a few words
//	e := t.Edit()
//	e.Set(7, p)                 // copies the path to the entry, once for each Edit
//	t = e.Tree()
//	tree.Diff(old, t, visit)    // skips what both share
//
// An Edit may change the nodes that it has made until Tree is called.
//
// INVARIANT: the nodes of a Tree are never written to. So any number of goroutines may read a Tree.
//
// INVARIANT: entry i of an inner node has the smallest key of child i, exactly; all leaves are at
// the same depth; each node but the root has at least minEntries entries.
//
// The package imports nothing of the project but range/invariants.
package tree
