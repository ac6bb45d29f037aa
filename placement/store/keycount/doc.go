// Package keycount counts the keys of a span without a visit to each, and remembers spans without
// keys, so that walks pass the deleted keys in them only once.
//
// Blocks has the numbers of keys of disjoint blocks of the key space, at the newest revision. Count
// scans keys that are in no block, and makes blocks of them. From then on each created or deleted
// key changes the number of its block, which takes a binary search. So a count costs a sum over
// blocks, and a scan of the two blocks that the span cuts.
//
//	Count ──► sum of whole blocks ──► scan of what is cut or not known ──► new blocks
//	                 ▲                                                        │
//	Changed ─────────┴── the newest changes, to go back to the revision ◄─────┘
//
// A count is for the revision of a database's snapshot, which may be older than the newest one. The
// newest changes are kept, and their effects since that revision are subtracted. An older revision
// is counted in full, and leaves no blocks.
//
// INVARIANT: the number of a block is its number of keys at the newest revision given to Changed or
// Advance.
//
// # Vacant spans
//
// Versions of deleted keys stay until they are compacted, and a walk has to pass them. A walk that
// has passed many in a row reports the span (FoundVacant), and later walks continue at its end
// (Vacant). A span is vacant from the revision of the walk on, until a key is created in it;
// deletions change nothing. The newest changes tell which keys were created between that revision
// and the newest one.
//
// INVARIANT: Changed is called before the change can be seen in the database. So a walk that looks
// up vacant spans after it has opened its state finds no span with a key that it has to see.
//
// Memory is bounded: Limits bound the number of blocks and the bytes of their bounds; above, blocks
// are joined. Only counted spans have blocks. A block that has grown large is dropped when a span
// cuts it, and counted again.
//
// Of the project, the package imports only range/keys and range/invariants. It does no I/O.
package keycount
