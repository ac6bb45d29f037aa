// Package spans finds which of many spans of keys hold a key: an interval tree, with a map beside
// it for spans of one key. Each span has one entry, however many watches have the span, and an
// entry carries a value of the caller.
//
//	e := index.Entry(span)     // finds the span's entry, or makes it
//	e.Value = ...
//	index.Visit(key, visit)    // every entry whose span holds key
//	index.Delete(e)
//
// Visit costs at most the logarithm of the number of spans for each entry that it visits.
//
// INVARIANT: nodes are ordered by start, and nodes with equal starts by end; the priority of a node
// is not above its parent's; max is the greatest end in the node's subtree.
//
// Of the project, the package imports only range/keys and range/invariants.
package spans
