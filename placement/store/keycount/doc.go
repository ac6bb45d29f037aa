// Package keycount counts the keys of a span without going through all of them, and remembers spans
// without keys, so that walks pass the deleted keys in them only once.
//
// Blocks has the numbers of keys of disjoint blocks of the key space, at the newest revision. They
// come from counting: keys that Count goes through, because no block has them, become blocks. From
// then on each key that is created or deleted changes the number of its block, which takes a binary
// search. So a count costs a sum over blocks, and the keys of the two blocks that the span cuts.
//
//	Count ──► sum of whole blocks ──► scan of what is cut or not known ──► new blocks
//	                 ▲                                                        │
//	Changed ─────────┴── the newest changes, to go back to the revision ◄─────┘
//
// A count is for the revision of a database's snapshot, which may be older than the newest one. The
// newest changes are kept, and their effects since that revision are subtracted. An older revision
// is counted in full, and leaves no blocks.
//
// INVARIANT: the number of a block is that of the keys in it at the newest revision that Changed or
// Advance has named.
//
// # Vacant spans
//
// Versions of deleted keys stay until they are compacted, and a walk has to pass them. A walk that
// has passed many in a row reports the span (FoundVacant), and later walks continue at its end
// (Vacant). A span is vacant from the revision of the walk on, until a key is created in it;
// deletions change nothing. The newest changes tell what was created between that revision and the
// newest one.
//
// INVARIANT: Changed is called before the change can be seen in the database. So a walk that looks
// for vacant spans after it has opened its state finds none that has a key which it has to see.
//
// Memory is bounded: there are at most so many blocks, with bounds of so many bytes, and further
// blocks are joined. A block exists only for spans that were counted; one that has grown large is
// forgotten when a span cuts it, and counted again.
//
// The package imports range/keys alone, and does no I/O.
package keycount
