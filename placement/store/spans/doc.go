// Package spans finds which of many spans of keys hold a key: an interval tree, with a map beside
// it for spans of one key. Each span has one entry, however many watches have it, and an entry
// carries a value of the caller.
//
//	e := index.Entry(span)     // finds the span's entry, or makes it
//	e.Value = ...
//	index.Visit(key, visit)    // every entry whose span holds key
//	index.Delete(e)
//
// Visit costs at most the logarithm of the number of spans for each entry that it visits.
//
// INVARIANT: a node of the tree has a start not below those in its left subtree and not above those
// in its right one (of equal starts, the same for the ends), a priority not above its parent's, and
// as max the greatest end in its subtree.
//
// It imports nothing of the project but range/keys and range/invariants.
package spans
