// Package keycount counts the keys of a span without going through all of them, and remembers spans
// that have none, so that a walk passes the deleted keys in them once.
//
// Blocks has the numbers of keys of disjoint blocks of the key space, as of the newest revision.
// They come from counting: what Count goes through, because no block has it, becomes blocks. From
// then on each key that is created or deleted changes the number of its block, which takes a binary
// search. So a count costs a sum over blocks, and the keys of the two blocks that the span cuts.
//
//	Count ──► sum of whole blocks ──► scan of what is cut or not known ──► new blocks
//	                 ▲                                                        │
//	Changed ─────────┴── the newest changes, to go back to the revision ◄─────┘
//
// A count is of a revision, which a database's snapshot has that may be older than the newest one.
// The newest changes are kept, and what they have changed since is taken off. A revision from
// before them is counted in full, and leaves no blocks.
//
// INVARIANT: the number of a block is that of the keys in it at the newest revision that Changed or
// Advance has named.
//
// # Vacant spans
//
// Versions of deleted keys stay until they are compacted, and a walk has to pass them. A walk that
// has passed many in a row says so (FoundVacant), and later ones go on at the span's end (Vacant).
// A span is vacant from the revision of the walk on, until a key is created in it; deletions change
// nothing. What was created between that revision and the newest one, the newest changes tell.
//
// INVARIANT: Changed is called before the change can be seen in the database. So a walk that looks
// for vacant spans after it has opened its state finds none that has a key which it has to see.
//
// Memory is bounded: there are at most so many blocks, with bounds of so many bytes, and when there
// would be more they are joined. Blocks that were not asked for are not there; one that has grown
// large is forgotten when a span cuts it, and counted again.
//
// The package imports range/keys alone, and does no I/O.
package keycount
