// Package storage is what a partition has in a state database: which spans of state keys belong to
// it, the record of what is applied, the descriptor, and what follows from these: counts, sums,
// removal. It holds no state and no lock. Replicas read and write by it, and so do tools for the
// databases of servers that do not run.
//
// A partition has three spans (Spans): the local one, by its id, with the applied record and the
// descriptor; the anchor span, with locks and transaction records; the data span, with versions.
//
// INVARIANT: the applied record is in the batch of what it describes, and is the same on every
// replica that has applied the same index.
package storage
